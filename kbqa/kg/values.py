"""Values of literals, read from their ids, so that they can be compared as SPARQL compares them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kbqa.kg.sparql.dates import DATE_TYPES, parse_date
from kbqa.logical_forms.algebra import XSD, Literal

_TYPED = re.compile(r'"(.*)"\^\^<(.*)>', re.DOTALL)
# What is written like a value: a name in a delimited file, or a literal without a datatype.
_WRITTEN = {
    XSD + "decimal": re.compile(r'(?P<quote>"?)(?P<text>-?\d+(?:\.\d+)?)(?P=quote)'),
    XSD + "date": re.compile(r'(?P<quote>"?)(?P<text>\d{4}-\d\d-\d\d)(?P=quote)'),
}
INTEGER_TYPES = frozenset(
    XSD + name
    for name in (
        *("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger"),
        *("nonPositiveInteger", "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort"),
        "unsignedByte",
    )
)
NUMBER_TYPES = INTEGER_TYPES | {XSD + name for name in ("decimal", "float", "double")}
VALUE_TYPES = NUMBER_TYPES | DATE_TYPES


class Value(NamedTuple):
    """A number or a date.

    Attributes:
        key: orders values of one kind: the number, or when the date begins.
        datatype: full IRI.
    """

    key: float
    datatype: str

    @property
    def is_date(self) -> bool:
        return self.datatype in DATE_TYPES

    def comparable(self, other: Value) -> bool:
        """Whether SPARQL orders the two: numbers among themselves, dates of one datatype."""
        return self.datatype == other.datatype if self.is_date else not other.is_date


def value_of(id_: str) -> Value | None:
    """The value of a literal given as N-Triples; None if it is neither a number nor a date."""
    found = _TYPED.fullmatch(id_)
    return None if found is None else _value(found[1], found[2])


def written_value(id_: str, datatype: str) -> Value | None:
    """The value of a text that is written like a number or a date, given as an id of a graph.

    Args:
        datatype: as what it is read, see `written_as`.
    """
    found = _WRITTEN[datatype].fullmatch(id_)
    return None if found is None else _value(found["text"], datatype)


def written_as(ids: Collection[str]) -> str | None:
    """The datatype as which all of some texts, given as ids, can be read: a decimal or a date.

    Returns:
        A full IRI; None if there are none, or if one of them has a datatype or cannot be read so.
    """
    for datatype in _WRITTEN if ids else ():
        if all(written_value(id_, datatype) is not None for id_ in ids):
            return datatype
    return None


def literal_value(literal: Literal) -> Value | None:
    """The value of a literal of a logical form, likewise."""
    return _value(literal.lexical, literal.datatype)


def most_frequent(counts: Iterable[tuple[str, int]]) -> str:
    """The datatype that occurs most often; the last by name of several."""
    totals: Counter[str] = Counter()
    for datatype, count in counts:
        totals[datatype] += count
    return max(totals, key=lambda datatype: (totals[datatype], datatype))


def _value(lexical: str, datatype: str) -> Value | None:
    if datatype in DATE_TYPES:
        moment = parse_date(lexical)
        return None if moment is None else Value(moment.instant, datatype)
    if datatype not in NUMBER_TYPES:
        return None
    try:
        number = float(lexical)
    except ValueError:  # a lexical form that its datatype does not have
        return None
    # What is no number is neither less nor greater than any.
    return None if math.isnan(number) else Value(number, datatype)
