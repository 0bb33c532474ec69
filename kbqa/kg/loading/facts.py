"""What a load hands over: facts, perhaps dated, and how SPARQL sees their dates and names.

A dated fact is a plain triple, and a statement beside it for each of its times:

    [] a rdf:Statement ; rdf:subject … ; rdf:predicate … ; rdf:object … ;
       <urn:kbqa:start> "2014-05-13"^^xsd:date ; <urn:kbqa:end> "2014-05-13"^^xsd:date .

    SELECT ?who ?start WHERE {
      ?fact rdf:subject <urn:kbqa:e:Japan> ; rdf:predicate <urn:kbqa:r:Consult> ; rdf:object ?who ;
            <urn:kbqa:start> ?start . FILTER(?start < "2014-02-01"^^xsd:date) }

The names of a labels file are rdfs:label, the others skos:altLabel. One-hop look-ups know
statements and such names as times and labels, not as triples.

A time is a point, `2014-05-13`, or `start; end`; `..` stands for an open end (ISO 8601-2).
In SPARQL a point starts and ends at itself, an open end is absent, and the literals are
xsd:gYear, gYearMonth, date or dateTime, as precise as the time is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import NamedTuple

import pyoxigraph as ox

from kbqa.errors import ConfigurationError

START, END = ox.NamedNode("urn:kbqa:start"), ox.NamedNode("urn:kbqa:end")
OPEN = ".."

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_TYPE, _STATEMENT = ox.NamedNode(_RDF + "type"), ox.NamedNode(_RDF + "Statement")
_SUBJECT, _PREDICATE = ox.NamedNode(_RDF + "subject"), ox.NamedNode(_RDF + "predicate")
_OBJECT = ox.NamedNode(_RDF + "object")
_LABEL = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#label")
_ALIAS = ox.NamedNode("http://www.w3.org/2004/02/skos/core#altLabel")
_XSD = "http://www.w3.org/2001/XMLSchema#"

_TIME = re.compile(
    r"(?P<year>-?\d{4,})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?P<clock>T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)?)?)?"
)
# The most precise part of a date that is given → the type of its literal.
_XSD_KINDS = {"clock": "dateTime", "day": "date", "month": "gYearMonth"}
_KEPT = 1 << 16


class Fact(NamedTuple):
    """A triple, and when it holds: "" if that is not said."""

    quad: ox.Quad
    time: str = ""


class Label(NamedTuple):
    """A name of an entity or relation; `preferred` for the one that is shown."""

    id: str
    name: str
    preferred: bool


class TimeUnit(StrEnum):
    """What the times of a file count."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


_STEPS = {
    TimeUnit.SECOND: timedelta(seconds=1),
    TimeUnit.MINUTE: timedelta(minutes=1),
    TimeUnit.HOUR: timedelta(hours=1),
    TimeUnit.DAY: timedelta(days=1),
    TimeUnit.WEEK: timedelta(weeks=1),
}
_MONTHS = {TimeUnit.MONTH: 1, TimeUnit.YEAR: 12}
# Precision of an epoch by its length → how a date of that precision is written.
_WRITTEN = {4: "%Y", 7: "%Y-%m", 10: "%Y-%m-%d", 19: "%Y-%m-%dT%H:%M:%S"}


@dataclass(frozen=True)
class Calendar:
    """Makes dates of whole numbers: `unit`s since `epoch`, written as precisely as the epoch is.

    ICEWS14 counts hours but dates days: with unit `hour` and epoch `2014-01-01`, 24 is
    `2014-01-02`, and 25, which is no whole day, is refused.

    Raises:
        ConfigurationError: the epoch is not 2014, 2014-01, 2014-01-01 or 2014-01-01T00:00:00.
    """

    unit: TimeUnit
    epoch: str

    def __post_init__(self) -> None:
        try:
            _ = self._start
        except (ValueError, KeyError):
            raise ConfigurationError(
                f'"{self.epoch}" is not a valid epoch: write 2014, 2014-01, 2014-01-01 or 2014-01-01T00:00:00'
            ) from None

    @cached_property
    def _start(self) -> datetime:
        return datetime.strptime(self.epoch, _WRITTEN[len(self.epoch)])

    def date(self, count: str) -> str:
        """The date that `count` stands for.

        Raises:
            ValueError: it is no whole number, out of range, or falls between two dates; says so.
        """
        if not re.fullmatch(r"[+-]?\d+", count):
            raise ValueError(f'the time "{count}" is not a whole number of {self.unit}s')
        try:
            moment = self._moment(int(count))
        except (OverflowError, ValueError):
            raise ValueError(f"{count} {self.unit}s after {self.epoch} is no date") from None
        written = _written(moment, len(self.epoch))
        if datetime.strptime(written, _WRITTEN[len(self.epoch)]) != moment:
            raise ValueError(
                f"{count} {self.unit}s after {self.epoch} fall after {written} and before the next: "
                "write --epoch more precisely"
            )
        return written

    def _moment(self, count: int) -> datetime:
        if self.unit in _STEPS:
            return self._start + count * _STEPS[self.unit]
        months = self._start.year * 12 + self._start.month - 1 + count * _MONTHS[self.unit]
        return self._start.replace(year=months // 12, month=months % 12 + 1)


def _written(moment: datetime, precision: int) -> str:
    # Not strftime: it does not pad years below 1000 everywhere.
    return moment.isoformat()[:precision]


def time_of(start: str, end: str | None, calendar: Calendar | None) -> str:
    """The time of a fact from a file's fields: of two, or of one, `end` then being None.

    An empty field is an open end. With a calendar, the end -1 means that there is none,
    the time being a point, as in ICEWS14.

    Raises:
        ValueError: a field is no date, or the end is before the start; says so.
    """
    if end is None or (calendar is not None and end == "-1"):
        return _date(start, calendar)
    first = _date(start, calendar) if start else OPEN
    last = _date(end, calendar) if end else OPEN
    if first == last:
        if first == OPEN:
            raise ValueError("neither start nor end is given")
        return first
    if OPEN not in (first, last) and _is_after(first, last):
        raise ValueError(f"the time ends at {last}, before its start {first}")
    return f"{first}; {last}"


@lru_cache(_KEPT)
def _date(text: str, calendar: Calendar | None) -> str:
    if calendar is not None:
        return calendar.date(text)
    match = _TIME.fullmatch(text)
    if match is None or not _exists(match):
        raise ValueError(
            f'"{text[:80]}" is not a date such as 2014, 2014-05, 2014-05-13 or 2014-05-13T10:00:00; '
            "if it counts something, give --time-unit and --epoch"
        )
    return text


def _exists(match: re.Match[str]) -> bool:
    # A leap year stands for all that datetime does not know.
    year = match["year"] if len(match["year"]) == 4 and match["year"] != "0000" else "2000"
    clock = (match["clock"] or "").replace("Z", "+00:00")
    try:
        datetime.fromisoformat(f"{year}-{match['month'] or '01'}-{match['day'] or '01'}{clock}")
    except ValueError:
        return False
    return True


def _is_after(first: str, last: str) -> bool:
    """Whether one date is after another, as precisely as both are known."""
    (year, rest), (last_year, last_rest) = _split(first), _split(last)
    shared = min(len(rest), len(last_rest))
    return (year, rest[:shared]) > (last_year, last_rest[:shared])


def _split(date: str) -> tuple[int, str]:
    """Year and what follows it, which sorts as text does."""
    match = _TIME.fullmatch(date)
    assert match is not None
    return int(match["year"]), date[match.end("year") :]


def statement_quads(fact: Fact) -> Iterator[ox.Quad]:
    """A dated fact as SPARQL sees it, beside the plain triple."""
    head, relation, tail, _ = fact.quad
    key = f"{head} {relation} {tail} {fact.time}".encode("utf-8", "surrogatepass")
    # The same fact at the same time is the same statement, however often a file says it.
    statement = ox.NamedNode(f"urn:kbqa:statement:{blake2b(key, digest_size=16).hexdigest()}")
    yield ox.Quad(statement, _TYPE, _STATEMENT)
    yield ox.Quad(statement, _SUBJECT, head)
    yield ox.Quad(statement, _PREDICATE, relation)
    yield ox.Quad(statement, _OBJECT, tail)
    start, separator, end = fact.time.partition("; ")
    if start != OPEN:
        yield ox.Quad(statement, START, _literal(start))
    if not separator or end != OPEN:
        yield ox.Quad(statement, END, _literal(end or start))


def label_quad(term: str, label: Label) -> ox.Quad:
    """A name of a labels file as SPARQL sees it; `term` is the IRI or blank node that it names."""
    node = ox.BlankNode(term[2:]) if term.startswith("_:") else ox.NamedNode(term)
    return ox.Quad(node, _LABEL if label.preferred else _ALIAS, ox.Literal(label.name))


@lru_cache(_KEPT)
def _literal(date: str) -> ox.Literal:
    match = _TIME.fullmatch(date)
    assert match is not None
    kind = next((kind for part, kind in _XSD_KINDS.items() if match[part]), "gYear")
    return ox.Literal(date, datatype=ox.NamedNode(_XSD + kind))
