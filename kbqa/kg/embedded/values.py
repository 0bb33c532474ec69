"""Values of literals, read from their ids, so that they can be compared as SPARQL compares them."""

from __future__ import annotations

import re
from typing import NamedTuple

from kbqa.logical_forms.algebra import XSD, Literal

_TYPED = re.compile(r'"(.*)"\^\^<(.*)>', re.DOTALL)
_INTEGERS = (
    "integer",
    "int",
    "long",
    "short",
    "byte",
    "nonNegativeInteger",
    "positiveInteger",
    "unsignedInt",
)
_NUMBERS = frozenset(XSD + name for name in (*_INTEGERS, "decimal", "float", "double"))
_DATES = frozenset(XSD + name for name in ("date", "dateTime", "gYear", "gYearMonth"))


class Value(NamedTuple):
    """A number or a date.

    Attributes:
        key: orders values of one kind: the number, or the text of the date.
        datatype: full IRI.
    """

    key: float | str
    datatype: str

    @property
    def is_date(self) -> bool:
        return isinstance(self.key, str)

    def comparable(self, other: Value) -> bool:
        """Whether SPARQL orders the two: numbers among themselves, dates of one datatype."""
        return self.datatype == other.datatype if self.is_date else not other.is_date


def value_of(id_: str) -> Value | None:
    """The value of a literal given as N-Triples; None if it is neither a number nor a date."""
    found = _TYPED.fullmatch(id_)
    return None if found is None else _value(found[1], found[2])


def literal_value(literal: Literal) -> Value | None:
    """The value of a literal of a logical form, likewise."""
    return _value(literal.lexical, literal.datatype)


def _value(lexical: str, datatype: str) -> Value | None:
    if datatype in _DATES:
        return Value(lexical, datatype)
    if datatype not in _NUMBERS:
        return None
    try:
        return Value(float(lexical), datatype)
    except ValueError:  # a lexical form that its datatype does not have
        return None
