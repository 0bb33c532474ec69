"""Generates questions like MultiTQ's about dated facts, reproducible by seed.

Each question has the query that answers it. Its path is the look-up that lists the relevant facts with
their times; the question selects some of them.
"""

from __future__ import annotations

import random
from calendar import month_name
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbqa.datasets.splits import Splits
from kbqa.datasets.world.events import VERBS, Event
from kbqa.datasets.world.times import Chronicle, Exactness, Inquiry, query
from kbqa.errors import DatasetError
from kbqa.trajectory import Hop, Question

MAX_ANSWERS = 5
MAX_EVENTS = 20  # per relation and entity: as many as an agent can read

_TRIES = 4_000
_EXACTNESS = tuple(Exactness)
_WHEN = {
    Exactness.DAY: ("when did", "on which day did"),
    Exactness.MONTH: ("in which month did", "in what month did"),
    Exactness.YEAR: ("in which year did", "in what year did"),
}


@dataclass(frozen=True, slots=True)
class TemporalQuestion:
    """A question, with the inquiry from which MultiTQ's other fields follow."""

    question: Question
    inquiry: Inquiry

    def record(self) -> dict[str, Any]:
        """The record in MultiTQ's format, which `kbqa.datasets.multitq` reads."""
        return {
            "quid": self.question.id,
            "question": self.question.text,
            "answers": list(self.question.answers),
            "answer_type": "time" if self.inquiry.asks_for_time else "entity",
            "time_level": self.inquiry.exactness.value,
            "qtype": self.inquiry.type,
            "qlabel": self.inquiry.label,
            "entities": list(self.question.topic_entities),
        }


def ask_about_events(
    events: Sequence[Event], seed: int, sizes: Mapping[str, int], kg: str
) -> dict[str, tuple[TemporalQuestion, ...]]:
    """Draw distinct questions about events for each split, in equal parts of each type.

    Raises:
        DatasetError: the events do not have enough questions.
    """
    asking = _Asking(events, seed, kg)
    return {split: asking.split(split, size) for split, size in sizes.items()}


def temporal_splits(asked: Mapping[str, Sequence[TemporalQuestion]]) -> Splits:
    """The splits with the plain questions."""
    return Splits(**{split: tuple(temporal.question for temporal in asked[split]) for split in asked})


class _Asking:
    def __init__(self, events: Sequence[Event], seed: int, kg: str) -> None:
        self._rng, self._kg = random.Random(f"temporal/questions/{seed}"), kg
        self._events = [event for event in events if event.relation in VERBS]
        self._chronicle = Chronicle(events)
        self._asked: set[Inquiry] = set()

    def split(self, split: str, size: int) -> tuple[TemporalQuestion, ...]:
        types = list(_DRAWN)
        return tuple(self._question(f"{split}-{n:05}", types[n % len(types)]) for n in range(size))

    def _question(self, id_: str, type_: str) -> TemporalQuestion:
        for _ in range(_TRIES):
            inquiry = _DRAWN[type_](self, self._rng.choice(self._events))
            if inquiry is None or inquiry in self._asked or not self._is_fit(inquiry):
                continue
            self._asked.add(inquiry)
            question = Question(
                id=id_,
                text=_text(inquiry, self._rng),
                answers=self._chronicle.answers(inquiry),
                topic_entities=inquiry.named(),
                kg=self._kg,
                path=(Hop(inquiry.relation, inverse=inquiry.subject is None),),
                sparql=query(inquiry),
                operation=inquiry.type,
            )
            return TemporalQuestion(question, inquiry)
        raise DatasetError(f"the events have no further questions of the type {type_}: ask for fewer")

    def _is_fit(self, inquiry: Inquiry) -> bool:
        """Whether an inquiry has few answers, and every constraint changes them."""
        known, answers = self._chronicle.known(inquiry), self._chronicle.answers(inquiry)
        if not 1 <= len(answers) <= MAX_ANSWERS or len(known) > MAX_EVENTS:
            return False
        looser = [replace(inquiry, pick="")] if inquiry.pick else []
        if inquiry.within:
            looser.append(replace(inquiry, within=""))
        if inquiry.side:
            looser.append(replace(inquiry, side="", than=""))
        return all(self._chronicle.answers(other) != answers for other in looser)

    # Inquiries of each type, made from an event

    def _equal(self, event: Event) -> Inquiry:
        exactness = self._rng.choice(_EXACTNESS)
        if self._rng.random() < 0.5:
            return Inquiry(event.relation, event.subject, event.object, exactness=exactness)
        return replace(self._about(event), within=exactness.of(event.day), exactness=exactness)

    def _first_last(self, event: Event) -> Inquiry:
        pick = self._rng.choice(("first", "last"))
        if self._rng.random() < 0.5:
            exactness = self._rng.choice(_EXACTNESS)
            return Inquiry(event.relation, event.subject, event.object, pick=pick, exactness=exactness)
        return replace(self._about(event), pick=pick)

    def _equal_multi(self, event: Event) -> Inquiry:
        exactness = self._rng.choice((Exactness.MONTH, Exactness.YEAR))
        pick = self._rng.choice(("first", "last"))
        return replace(self._about(event), within=exactness.of(event.day), pick=pick, exactness=exactness)

    def _before_after(self, event: Event) -> Inquiry | None:
        return self._beside(event, self._rng.choice(("before", "after")), "")

    def _before_last(self, event: Event) -> Inquiry | None:
        return self._beside(event, "before", "last")

    def _after_first(self, event: Event) -> Inquiry | None:
        return self._beside(event, "after", "first")

    def _about(self, event: Event) -> Inquiry:
        """Ask who did it, or to whom it was done."""
        if self._rng.random() < 0.5:
            return Inquiry(event.relation, None, event.object)
        return Inquiry(event.relation, event.subject, None)

    def _beside(self, event: Event, side: str, pick: str) -> Inquiry | None:
        """Ask for what was before or after a day, or an event that happened on exactly one day."""
        inquiry = replace(self._about(event), side=side, than=event.day, pick=pick)
        if self._rng.random() < 0.3:
            return inquiry
        who = event.object if inquiry.object is None else event.subject
        days = {
            known.day
            for known in self._chronicle.known(inquiry)
            if who == (known.object if inquiry.object is None else known.subject)
        }
        return replace(inquiry, than=who) if len(days) == 1 else None


_DRAWN: dict[str, Callable[[_Asking, Event], Inquiry | None]] = {
    "equal": _Asking._equal,
    "before_after": _Asking._before_after,
    "first_last": _Asking._first_last,
    "equal_multi": _Asking._equal_multi,
    "before_last": _Asking._before_last,
    "after_first": _Asking._after_first,
}


def _text(inquiry: Inquiry, rng: random.Random) -> str:
    """The text of a question."""
    verb = VERBS[inquiry.relation]
    if inquiry.asks_for_time:
        when = rng.choice(_WHEN[inquiry.exactness])
        if not inquiry.pick:
            return f"{when} {inquiry.subject} {verb.infinitive} {inquiry.object} ?"
        patterns = (
            f"{when} {inquiry.subject} {inquiry.pick} {verb.infinitive} {inquiry.object} ?",
            f"{when} {inquiry.subject} {verb.infinitive} {inquiry.object} for the {inquiry.pick} time ?",
        )
        return rng.choice(patterns)
    if inquiry.object is not None:
        plain = f"who {verb.past} {inquiry.object}"
        extreme = f"who was the {inquiry.pick} to {verb.infinitive} {inquiry.object}"
    else:
        plain = f"who was it that {inquiry.subject} {verb.past}"
        extreme = f"who was the {inquiry.pick} that {inquiry.subject} {verb.past}"
    asked = extreme if inquiry.pick else plain
    constraint = _constraint(inquiry)
    if not constraint:
        return f"{asked} ?"
    return rng.choice((f"{asked} {constraint} ?", f"{constraint} , {asked} ?"))


def _constraint(inquiry: Inquiry) -> str:
    if inquiry.within:
        return f"{'on' if inquiry.exactness is Exactness.DAY else 'in'} {_spoken(inquiry.within)}"
    if inquiry.side:
        return f"{inquiry.side} {_spoken(inquiry.than) if inquiry.than_a_day else inquiry.than}"
    return ""


def _spoken(time: str) -> str:
    """A time in words: 2014, May 2014, 13 May 2014."""
    year, *rest = time.split("-")
    month = [month_name[int(rest[0])]] if rest else []
    day = [str(int(rest[1]))] if len(rest) > 1 else []
    return " ".join([*day, *month, year])
