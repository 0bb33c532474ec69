"""What the entities at an end of a relation are called in patterns whose words agree in number."""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.datasets.world.phrases import Party

_GENERAL = frozenset({"person", "thing", "value"})


@dataclass(frozen=True, slots=True)
class Nouns:
    """The words for an end of a relation.

    Attributes:
        one, several, either: the noun; `either` agrees with what is asked for.
        who: who or what.
        that: who or that, before a clause.
        is_general: whether the noun says hardly anything (person, thing).
    """

    one: str
    several: str
    either: str
    who: str
    that: str
    is_general: bool

    @classmethod
    def of(cls, party: Party) -> Nouns:
        one, several = party.kind.singular, party.kind.plural
        that = "who" if party.is_person else "that"
        return cls(one, several, agreeing(one, several), party.who, that, one in _GENERAL)


def agreeing(one: str, several: str) -> str:
    """The form of a word that agrees with what is asked for."""
    return f"{{a:{one}|{several}}}"
