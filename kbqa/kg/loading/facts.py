"""The facts and labels that a load yields, and their representation in SPARQL.

A dated fact is a plain triple, plus one statement for each of its times:

    [] a rdf:Statement ; rdf:subject … ; rdf:predicate … ; rdf:object … ;
       <urn:kbqa:start> "2014-05-13"^^xsd:date ; <urn:kbqa:end> "2014-05-13"^^xsd:date .

    SELECT ?who ?start WHERE {
      ?fact rdf:subject <urn:kbqa:e:Japan> ; rdf:predicate <urn:kbqa:r:Consult> ; rdf:object ?who ;
            <urn:kbqa:start> ?start . FILTER(?start < "2014-02-01"^^xsd:date) }

The preferred names in a labels file become rdfs:label, the others skos:altLabel. One-hop
look-ups show statements as times and names as labels, not as triples.

A time is a point, `2014-05-13`, or `start; end`; `..` stands for an open end (ISO 8601-2).
In SPARQL, the start and end of a point are equal, an open end is omitted, and the literal's
type (xsd:gYear, gYearMonth, date or dateTime) follows from the precision of the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import pyoxigraph as ox

from kbqa.errors import ConfigurationError
from kbqa.kg.naming import ENTITY_NAMESPACE, RELATION_NAMESPACE, encoded_lines, entity_iri, relation_iri

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
# The most precise part of a date → the type of its literal.
_XSD_KINDS = {"clock": "dateTime", "day": "date", "month": "gYearMonth"}
_KEPT = 1 << 16


class Fact(NamedTuple):
    """A triple and its time; "" if it has none."""

    quad: ox.Quad
    time: str = ""


@dataclass(frozen=True)
class NamedTriples:
    """Triples of a delimited file that have no times, at least one, in columns; iterated over, facts.

    Millions of them are read in a third of the time that as many facts take.
    """

    heads: Sequence[str]
    relations: Sequence[str]
    tails: Sequence[str]

    def __iter__(self) -> Iterator[Fact]:
        for triple in zip(self.heads, self.relations, self.tails, strict=True):
            yield Fact(named_quad(*triple))

    def n_triples(self) -> str:
        """The triples in N-Triples, one a line."""
        rows = zip(self.heads, self.relations, self.tails, strict=True)
        terms = encoded_lines("\n".join(chain.from_iterable(rows))).split("\n")
        return "".join(
            [
                f"<{ENTITY_NAMESPACE}{head}> <{RELATION_NAMESPACE}{relation}> <{ENTITY_NAMESPACE}{tail}> .\n"
                for head, relation, tail in zip(terms[::3], terms[1::3], terms[2::3], strict=True)
            ]
        )


def each_fact(pieces: Iterable[Fact | NamedTriples]) -> Iterator[Fact]:
    """The facts one by one, those of columns included."""
    for piece in pieces:
        if isinstance(piece, NamedTriples):
            yield from piece
        else:
            yield piece


class Label(NamedTuple):
    """A name of an entity or relation; `preferred` marks the one that is shown."""

    id: str
    name: str
    preferred: bool


class TimeUnit(StrEnum):
    """The unit of the numeric times in a file."""

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
# Length of an epoch → the format of dates with the same precision.
_WRITTEN = {4: "%Y", 7: "%Y-%m", 10: "%Y-%m-%d", 19: "%Y-%m-%dT%H:%M:%S"}


@dataclass(frozen=True)
class Calendar:
    """Converts whole numbers of `unit`s since `epoch` to dates with the epoch's precision.

    ICEWS14 counts hours, but its dates are days: with unit `hour` and epoch `2014-01-01`, 24
    is `2014-01-02`, and 25 is refused because it is not a whole number of days.

    Raises:
        ConfigurationError: the epoch is not of the form 2014, 2014-01, 2014-01-01 or
            2014-01-01T00:00:00.
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
            ValueError: `count` is not a whole number, is out of range, or falls between two dates.
        """
        if not re.fullmatch(r"[+-]?\d+", count):
            raise ValueError(f'the time "{count}" is not a whole number of {self.unit}s')
        try:
            moment = self._moment(int(count))
        except (OverflowError, ValueError):
            raise ValueError(f"{count} {self.unit}s after {self.epoch} is not a date") from None
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


def named_quad(head: str, relation: str, tail: str) -> ox.Quad:
    """A line of a delimited file as a quad."""
    return ox.Quad(_entity_node(head), _relation_node(relation), _entity_node(tail))


# Cached, because names repeat within a file and making their IRIs costs more than the rest of reading.
@lru_cache(1 << 18)
def _entity_node(name: str) -> ox.NamedNode:
    return ox.NamedNode(entity_iri(name))


@lru_cache(1 << 16)
def _relation_node(name: str) -> ox.NamedNode:
    return ox.NamedNode(relation_iri(name))


def time_of(start: str, end: str | None, calendar: Calendar | None) -> str:
    """The time of a fact, from one or two fields of a file; `end` is None if there is only one.

    An empty field is an open end. With a calendar, an end of -1 means that the time is a
    point, as in ICEWS14.

    Raises:
        ValueError: a field is not a date, or the end is before the start.
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
    # A leap year replaces the years that datetime does not support.
    year = match["year"] if len(match["year"]) == 4 and match["year"] != "0000" else "2000"
    clock = (match["clock"] or "").replace("Z", "+00:00")
    try:
        datetime.fromisoformat(f"{year}-{match['month'] or '01'}-{match['day'] or '01'}{clock}")
    except ValueError:
        return False
    return True


def _is_after(first: str, last: str) -> bool:
    """Whether one date is after another, compared at the lower of their precisions."""
    (year, rest), (last_year, last_rest) = _split(first), _split(last)
    shared = min(len(rest), len(last_rest))
    return (year, rest[:shared]) > (last_year, last_rest[:shared])


def _split(date: str) -> tuple[int, str]:
    """The year, and the rest of the date, which sorts correctly as text."""
    match = _TIME.fullmatch(date)
    assert match is not None
    return int(match["year"]), date[match.end("year") :]


def statement_quads(fact: Fact) -> Iterator[ox.Quad]:
    """The statement that represents a dated fact in SPARQL, without the plain triple."""
    head, relation, tail, _ = fact.quad
    key = f"{head} {relation} {tail} {fact.time}".encode("utf-8", "surrogatepass")
    # The same fact at the same time gives the same statement, even if a file repeats it.
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
    """A name from a labels file as a quad; `term` is the IRI or blank node that it names."""
    node = ox.BlankNode(term[2:]) if term.startswith("_:") else ox.NamedNode(term)
    return ox.Quad(node, _LABEL if label.preferred else _ALIAS, ox.Literal(label.name))


@lru_cache(_KEPT)
def _literal(date: str) -> ox.Literal:
    match = _TIME.fullmatch(date)
    assert match is not None
    kind = next((kind for part, kind in _XSD_KINDS.items() if match[part]), "gYear")
    return ox.Literal(date, datatype=ox.NamedNode(_XSD + kind))
