"""Finds what a demonstration must not say, because no policy could know it.

    hint         a hint that its teacher was shown, or a mention of one
    answer       a gold answer before the question or an observation has shown it
    later step   a name in a thought that only a later command introduces

A policy that imitates a leak learns to guess. Names count as leaked only if nobody would write them
by chance: ids such as `film.film.director`, `has_genre` or `expression3`, not words such as `born`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from kbqa.answers import normalise
from kbqa.cold_start.demonstrations import Played
from kbqa.gold import gold_names
from kbqa.kg.actions import Success, named

HINT_MARK = "[Reference:"
"""How every hint begins."""

_TALK = re.compile(
    r"\b(?:the|this|that|given|provided|your) (?:hint|reference(?:d)? (?:step|action|command))\b"
    r"|\bas (?:hinted|referenced|instructed|suggested by the reference)\b"
    r"|\b(?:ground[- ]truth|gold(?:en)? (?:answer|action|program|query|step))\b",
    re.IGNORECASE,
)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_ID = re.compile(r"expression\d+|[\w]+(?:[.:/]\w+)+|\w*[^\W_]_\w+", re.IGNORECASE)


class Leak(StrEnum):
    HINT = "leaked_hint"
    ANSWER = "leaked_answer"
    LATER_STEP = "leaked_later_step"


@dataclass(frozen=True, slots=True)
class Finding:
    """A leak in an episode.

    Attributes:
        turn: counted from 1.
        says: the text that should not be there.
    """

    leak: Leak
    turn: int
    says: str


def find_leaks(played: Played, *, plans: bool = False) -> Iterator[Finding]:
    """Every leak of an episode.

    Args:
        plans: whether its teacher states the steps to come by design, as teachers of gold programs do;
            later steps are then not leaks.
    """
    gold = _gold_names(played)
    commands = [_ids(_THOUGHT.sub("", turn.text)) for turn in played.turns]
    shown = _plain(played.prompt)
    known: set[str] = set()  # ids of commands so far
    for number, turn in enumerate(played.turns, start=1):
        if HINT_MARK.casefold() in turn.text.casefold():
            yield Finding(Leak.HINT, number, HINT_MARK)
        elif talk := _TALK.search(turn.thought):
            yield Finding(Leak.HINT, number, talk[0])
        said = _plain(turn.text)
        for name in gold:
            if _holds(said, name) and not _holds(shown, name):
                yield Finding(Leak.ANSWER, number, name)
        known |= commands[number - 1]
        if not plans:
            later = set().union(*commands[number:]) - known
            for name in sorted(later & _ids(turn.thought)):
                if not _holds(shown, name):
                    yield Finding(Leak.LATER_STEP, number, name)
        shown += " " + _plain(turn.observation)


def _gold_names(played: Played) -> list[str]:
    """The gold answers, as given and as results name them."""
    gold = set(gold_names(played.question))
    for turn in played.turns:
        for result in turn.results:
            for item in named(result.items) if isinstance(result, Success) else ():
                if normalise(item.id) in gold or normalise(item.label) in gold:
                    gold |= {normalise(item.id), normalise(item.label)}
    return sorted(gold - {""})


def _ids(text: str) -> set[str]:
    return {name.casefold() for name in _ID.findall(unquote(text))}


def _plain(text: str) -> str:
    """A text in the form in which names are looked for."""
    return normalise(unquote(text))


def _holds(text: str, name: str) -> bool:
    """Whether a text contains a whole name."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
