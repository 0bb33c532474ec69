"""Number agreement in patterns: a pattern has both forms of a word, and what it is about chooses.

"{a:who is|who are} the {a:director|directors} of {}"        a: what is asked for
"when {s:was|were} {} released"                              s: the subject, which `{}` stands for
"{name} 's director"                                         as `{}`, for subjects that are names only
"whose genre is one of {phrase}"                             as `{}`, for all other subjects only
"did {e} direct {}"                                          {e}: an entity that is named later
"""

from __future__ import annotations

_ONLY_OF_NAMES, _ONLY_OF_PHRASES = "{name}", "{phrase}"
_LATER = "\0"


class Number:
    """Chooses between the two forms of a word, as the format specification `one|several`."""

    def __init__(self, is_plural: bool) -> None:
        self._is_plural = is_plural

    def __format__(self, forms: str) -> str:
        one, _, several = forms.partition("|")
        return several if self._is_plural else one


def fill(pattern: str, subject: str, *, is_plural: bool = False, answers: bool = False) -> str:
    """A pattern with its subject.

    Args:
        is_plural: whether the subject is several things.
        answers: whether several things are asked for.
    """
    numbers = {"s": Number(is_plural), "a": Number(answers)}
    return pattern.format(subject, name=subject, phrase=subject, e=_LATER, **numbers)


def with_entity(phrase: str, entity: str) -> str:
    """A phrase with the entity that its pattern left open."""
    return phrase.replace(_LATER, entity)


def fits(pattern: str, *, is_name: bool) -> bool:
    """Whether the subject of a pattern may be a name, or another phrase."""
    return (_ONLY_OF_PHRASES if is_name else _ONLY_OF_NAMES) not in pattern
