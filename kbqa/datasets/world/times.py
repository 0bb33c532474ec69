"""Inquiries about dated facts, in the types of MultiTQ (Chen et al. 2023, table 2).

    equal         Who visited Japan in May 2014?                          In which month did A visit B?
    before_after  Who visited Japan before Iran did?
    first_last    Who was the first to visit Japan?                       When did A first visit B?
    equal_multi   In 2014, who was the last to visit Japan?
    before_last   Who was the last to visit Japan before Iran did?
    after_first   After Iran, who was the first to visit Japan?

The first three have one time constraint (Single), the others two (Multiple). Answers are entities, or
times with the requested precision: 2014-05-13, 2014-05 or 2014.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kbqa.datasets.world.events import Event
from kbqa.kg.loading.facts import START
from kbqa.kg.naming import entity_iri, relation_iri


class Exactness(StrEnum):
    """The precision of a time."""

    DAY = "day"
    MONTH = "month"
    YEAR = "year"

    def of(self, day: str) -> str:
        """A day, cut to this precision."""
        return day[: {"day": 10, "month": 7, "year": 4}[self]]


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question about the events of one relation.

    Attributes:
        subject, object: the known ones; the other is asked for, or the time if both are known.
        within: a day, month or year; "" for any.
        side: `before` or `after`; "" for neither.
        than: a day, or an entity in the requested role of an event that happened on exactly one day.
        pick: `first` or `last`; "" for all.
        exactness: precision of the times in the question or its answers.
    """

    relation: str
    subject: str | None
    object: str | None
    within: str = ""
    side: str = ""
    than: str = ""
    pick: str = ""
    exactness: Exactness = Exactness.DAY

    @property
    def asks_for_time(self) -> bool:
        return self.subject is not None and self.object is not None

    @property
    def type(self) -> str:
        """MultiTQ's `qtype`."""
        if self.side and self.pick:
            return {"before": "before_last", "after": "after_first"}[self.side]
        if self.side:
            return "before_after"
        if self.pick:
            return "equal_multi" if self.within else "first_last"
        return "equal"

    @property
    def label(self) -> str:
        """MultiTQ's `qlabel`."""
        return "Single" if self.type in ("equal", "before_after", "first_last") else "Multiple"

    @property
    def than_a_day(self) -> bool:
        return self.than[:4].isdigit()

    def named(self) -> tuple[str, ...]:
        """The entities that the question names."""
        than = () if self.than_a_day or not self.than else (self.than,)
        return tuple(filter(None, (self.subject, self.object))) + than


class Chronicle:
    """Events, indexed by relation and known entity."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.of_object: dict[tuple[str, str], list[Event]] = defaultdict(list)
        self.of_subject: dict[tuple[str, str], list[Event]] = defaultdict(list)
        for event in events:
            self.of_object[event.relation, event.object].append(event)
            self.of_subject[event.subject, event.relation].append(event)

    def known(self, inquiry: Inquiry) -> list[Event]:
        """The events of the relation with the known entities."""
        if inquiry.subject is not None:
            events = self.of_subject[inquiry.subject, inquiry.relation]
            return [e for e in events if inquiry.object in (None, e.object)]
        assert inquiry.object is not None
        return self.of_object[inquiry.relation, inquiry.object]

    def answers(self, inquiry: Inquiry) -> tuple[str, ...]:
        """The answers, sorted; computed directly from the events."""
        known = self.known(inquiry)
        found = [event for event in known if event.day.startswith(inquiry.within)]
        if inquiry.side:
            bound = inquiry.than if inquiry.than_a_day else _day_of(known, inquiry)
            is_before = inquiry.side == "before"
            found = [e for e in found if (e.day < bound if is_before else e.day > bound)]
        if inquiry.pick and found:
            day = (min if inquiry.pick == "first" else max)(event.day for event in found)
            found = [event for event in found if event.day == day]
        return tuple(sorted({_asked(inquiry, event) for event in found}))


def _day_of(known: Sequence[Event], inquiry: Inquiry) -> str:
    """The only day of the events with `than` in the requested role."""
    (day,) = {event.day for event in known if _asked(inquiry, event) == inquiry.than}
    return day


def _asked(inquiry: Inquiry, event: Event) -> str:
    if inquiry.asks_for_time:
        return inquiry.exactness.of(event.day)
    return event.object if inquiry.object is None else event.subject


def query(inquiry: Inquiry) -> str:
    """SPARQL over the statements of dated facts (`kbqa.kg.loading.facts`), with answers in `?x`."""
    answer = "?x"
    if inquiry.asks_for_time:
        answer = f"(SUBSTR(STR(?t), 1, {len(inquiry.exactness.of('2014-05-13'))}) AS ?x)"
    pattern = _pattern(inquiry, "?x", "?t")
    if inquiry.pick:
        extreme = "MIN" if inquiry.pick == "first" else "MAX"
        others = _pattern(inquiry, "?other", "?when")
        pattern += (
            f" {{ SELECT ({extreme}(STR(?when)) AS ?best) WHERE {{ {others} }} }} FILTER(STR(?t) = ?best)"
        )
    return f"SELECT DISTINCT {answer} WHERE {{ {pattern} }}"


def _pattern(inquiry: Inquiry, asked: str, time: str) -> str:
    """A pattern for the events, with the requested entity and the time as variables."""
    parts = [_statement(inquiry, asked, time)]
    if inquiry.within:
        parts.append(f'FILTER(STRSTARTS(STR({time}), "{inquiry.within}"))')
    if inquiry.side:
        sign = "<" if inquiry.side == "before" else ">"
        if inquiry.than_a_day:
            parts.append(f'FILTER(STR({time}) {sign} "{inquiry.than}")')
        else:
            bound = f"{time}0"
            parts.append(_statement(inquiry, f"<{entity_iri(inquiry.than)}>", bound))
            parts.append(f"FILTER(STR({time}) {sign} STR({bound}))")
    return " ".join(parts)


def _statement(inquiry: Inquiry, asked: str, time: str) -> str:
    ends = (
        f"<{entity_iri(name)}>" if name is not None else asked for name in (inquiry.subject, inquiry.object)
    )
    subject, object_ = ends
    relation = f"<{relation_iri(inquiry.relation)}>"
    return (
        f"{time}f rdf:subject {subject} ; rdf:predicate {relation} ; rdf:object {object_} ; "
        f"<{START.value}> {time} ."
    )
