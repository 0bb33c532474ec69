"""What a reference stands for, among what a conversation has mentioned.

What disagrees with the reference is left out: "he" is no film, and no mother. Of the rest, what agrees best
goes first, then what is of another kind than what is asked for, then what the question fits better:
"released" is said of a film. Of equals, the latest goes first, and in an exchange its answer before its
names.

Something is a person if its types say so, or if it is the answer to a question with "who".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kbqa.conversation.acquaintances import Acquaintance, Acquaintances, words_of
from kbqa.conversation.exchanges import MAX_NAMES, Exchange, Thing
from kbqa.conversation.nouns import MEN, PEOPLE, PLACES, THINGS, WOMEN
from kbqa.conversation.references import Reference, Sort

_SEARCHED = 3  # exchanges
_ALIKE = 0.05  # difference between fits that says nothing

_BY_WHO = re.compile(r"^\W*(?:who|whom)\b(?!\s+or\s+what)", re.IGNORECASE)
_BY_WHERE = re.compile(r"^\W*(?:where)\b", re.IGNORECASE)
_ASKED_NOUNS = (
    re.compile(
        r"\b(?:which|what)\s+(?!(?:is|are|was|were|do|does|did|has|have|had|can|will)\b)([^\W\d_]+)",
        re.IGNORECASE,
    ),
    re.compile(r"\bthe\s+(?:[^\W\d_]+\s+)*?([^\W\d_]+)\s+(?:of|who|that|which|where)\b", re.IGNORECASE),
    re.compile(r"'s\s+(?:[^\W\d_]+\s+)*?([^\W\d_]+)[\s?.!]*$", re.IGNORECASE),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a reference may stand for: one entity, or the answers of one question together.

    Attributes:
        kinds: words for what they are.
        fit: how well the question can be asked about them; None if it is not known.
        is_near: whether the question itself names it.
    """

    things: tuple[Thing, ...]
    kinds: frozenset[str]
    fit: float | None
    is_near: bool = False

    def agreement(self, reference: Reference) -> int:
        """How well the reference agrees with it, from 0: the reference cannot stand for it."""
        kinds, several = self.kinds, len(self.things) > 1
        is_person, is_thing = bool(kinds & PEOPLE), bool(kinds & THINGS)
        match reference.sort:
            case Sort.KIND:
                return int(reference.kind in kinds)
            case Sort.SEVERAL:
                return 1 + several
            case _ if several:
                return 0
            case Sort.MAN | Sort.WOMAN as sort:
                own, other = (MEN, WOMEN) if sort is Sort.MAN else (WOMEN, MEN)
                if kinds & other or (is_thing and not is_person):
                    return 0
                return 3 if kinds & own else 1 + is_person
            case Sort.PLACE:
                return 0 if is_person else 1 + bool(kinds & PLACES)
            case _:
                return 0 if is_person else 1 + is_thing


def candidates(
    question: str, exchanges: Sequence[Exchange], near: Sequence[Thing], graph: Acquaintances
) -> list[Candidate]:
    """What references of a question may stand for, in the order in which it comes to mind.

    Args:
        near: what the question itself names.

    Raises:
        GraphNotFoundError, GraphUnavailableError: as the graph.
    """
    said: list[tuple[tuple[Thing, ...], frozenset[str], bool]] = [
        ((thing,), frozenset(), True) for thing in near
    ]
    said += [
        (things, kinds, False) for one in reversed(exchanges[-_SEARCHED:]) for things, kinds in _said(one)
    ]
    known = graph.of(list(dict.fromkeys(thing.id for things, _, _ in said for thing in things[:1])), question)
    unique: dict[tuple[str, ...], Candidate] = {}
    for things, kinds, is_near in said:
        acquaintance = known.get(things[0].id, Acquaintance())
        candidate = Candidate(things, kinds | acquaintance.kinds, acquaintance.fit, is_near)
        unique.setdefault(tuple(thing.id for thing in things), candidate)
    return list(unique.values())


def choose(
    reference: Reference, found: Sequence[Candidate], asked: Collection[str] = frozenset()
) -> Candidate | None:
    """What a reference stands for; None if it is nothing of that.

    Args:
        asked: words for what the question asks for, which is seldom of the kind of what it is about: "the
            city where it took place" is not asked of a city.
    """
    if reference.is_object:
        found = [candidate for candidate in found if not candidate.is_near]
    most = max((candidate.agreement(reference) for candidate in found), default=0)
    able = [candidate for candidate in found if most and candidate.agreement(reference) == most]
    able = [candidate for candidate in able if not candidate.kinds.intersection(asked)] or able
    best = max((candidate.fit for candidate in able if candidate.fit is not None), default=0.0)
    return next((one for one in able if one.fit is None or one.fit >= best - _ALIKE), None)


def _said(exchange: Exchange) -> Iterator[tuple[tuple[Thing, ...], frozenset[str]]]:
    """What an exchange has mentioned, with words for what its answers are."""
    if 0 < len(exchange.answers) <= MAX_NAMES:
        yield exchange.answers, asked_kinds(exchange.question)
    for name in exchange.names[:MAX_NAMES]:
        yield (Thing(id=name.id, label=name.label),), frozenset()


def asked_kinds(question: str) -> frozenset[str]:
    """Words for what a question asks for."""
    found = {"person"} if _BY_WHO.match(question) else {"place"} if _BY_WHERE.match(question) else set[str]()
    for pattern in _ASKED_NOUNS:
        if match := pattern.search(question):
            found |= words_of(match.group(1))
    return frozenset(found)
