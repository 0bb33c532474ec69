"""Finds what in a question stands for something that was mentioned before.

Where was he born?                   he: a person
Who wrote its script?                its: a thing, possessive
Who directed that film?              that film: a thing of the kind "film"
Who was born there?                  there: a place
Is it true that Heat is a film?      nothing
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Sort(StrEnum):
    """What a reference can stand for."""

    MAN = "man"
    WOMAN = "woman"
    THING = "thing"
    SEVERAL = "several"
    PLACE = "place"
    KIND = "kind"


@dataclass(frozen=True, slots=True)
class Reference:
    """A pronoun, or a noun with a demonstrative, at `[start:end]` of a question.

    Attributes:
        is_possessive: whether it stands before what belongs to it ("his mother").
        is_object: whether it cannot mean the subject of its own clause ("him").
        kind: the noun of a `KIND`, in lower case.
    """

    start: int
    end: int
    text: str
    sort: Sort
    is_possessive: bool = False
    is_object: bool = False
    kind: str = ""


_SORTS = {
    **dict.fromkeys(("he", "him", "his"), Sort.MAN),
    **dict.fromkeys(("she", "her", "hers"), Sort.WOMAN),
    **dict.fromkeys(("it", "its"), Sort.THING),
    **dict.fromkeys(("they", "them", "their", "theirs"), Sort.SEVERAL),
    "there": Sort.PLACE,
}
_PRONOUN = re.compile(rf"\b({'|'.join(sorted(_SORTS, key=len, reverse=True))})\b", re.IGNORECASE)
_DEMONSTRATIVE = re.compile(r"\b(?:this|that|these|those|the same)\s+([^\W\d_]{3,})", re.IGNORECASE)
_LAST = re.compile(r"\bthe\s+([^\W\d_]{3,})\s*[?.!]*\s*$", re.IGNORECASE)
_ALWAYS_POSSESSIVE = frozenset({"its", "their"})
_OBJECTS = frozenset({"him", "them"})
# It stands for nothing in "is it true that …", "how many films are there".
_EMPTY_IT = re.compile(r"\bit\s+(true|possible|known|the case)\b", re.IGNORECASE)
_EMPTY_THERE = re.compile(
    r"\b(is|are|was|were|be|been)\s+there\b|\bthere\s+(is|are|was|were)\b", re.IGNORECASE
)
_SUBJECT_IT = re.compile(r"\b(is|was|does|did|has|had|can|will)\s+$", re.IGNORECASE)
# What may follow "her" and "his" where nothing belongs to them.
_AFTER_OBJECT = frozenset(
    re.findall(
        r"\w+",
        """
        about after and as at before but by during for from have in into is last of on or since than that the
        to was were when where which while who with
        """,
    )
)


def references(question: str, taken: Sequence[tuple[int, int]] = ()) -> list[Reference]:
    """The references of a question, in their order.

    Args:
        taken: places of names, whose words stand for themselves: the film "Her".
    """
    empty = [m.span() for pattern in (_EMPTY_IT, _EMPTY_THERE) for m in pattern.finditer(question)]
    found = [_pronoun(question, m) for m in _PRONOUN.finditer(question)]
    matches = [m for pattern in (_DEMONSTRATIVE, _LAST) for m in pattern.finditer(question)]
    for match in matches:
        kind = match.group(1).lower()
        end = match.end(1)
        found.append(Reference(match.start(), end, question[match.start() : end], Sort.KIND, kind=kind))
    apart = [*taken, *empty]
    free = [r for r in found if all(r.end <= start or end <= r.start for start, end in apart)]
    return sorted(free, key=lambda reference: reference.start)


def _pronoun(question: str, match: re.Match[str]) -> Reference:
    word = match.group().lower()
    after = re.match(r"\s+([^\W\d_][\w-]*)", question[match.end() :])
    before_noun = after is not None and after.group(1).lower() not in _AFTER_OBJECT
    is_possessive = word in _ALWAYS_POSSESSIVE or (word in ("her", "his") and before_noun)
    is_object = (
        word in _OBJECTS
        or (word == "her" and not is_possessive)
        or (word == "it" and not _SUBJECT_IT.search(question[: match.start()]))
    )
    return Reference(*match.span(), match.group(), _SORTS[word], is_possessive, is_object)
