"""Custom functions of the embedded engine, which `dialect` calls in rewritten queries.

A function returns None for a SPARQL error, also for arguments that it does not handle;
the query then falls back to the engine's own result.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import pyoxigraph as ox

from kbqa.kg.sparql.dates import DATE_TYPES, XSD, Date, parse_date
from kbqa.kg.sparql.dialect import FUNCTION_NAMESPACE

Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple

_DATE_TIME, _DATE, _INTEGER, _BOOLEAN, _DURATION, _STRING = (
    ox.NamedNode(XSD + name)
    for name in ("dateTime", "date", "integer", "boolean", "dayTimeDuration", "string")
)
_TRUE, _FALSE = (ox.Literal(value, datatype=_BOOLEAN) for value in ("true", "false"))
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_UNTYPED = (_STRING, _INTEGER)
_DURATION_TEXT = re.compile(
    r"(-?)P(?:(\d{1,15})D)?(?:T(?:(\d{1,15})H)?(?:(\d{1,15})M)?(?:(\d{1,15}(?:\.\d+)?)S)?)?"
)


def compare(left: Term, sign: Term, right: Term) -> ox.Literal | None:
    """Compare two dates of any type and precision, or a difference of dates with a number of seconds.

    A plain string or a year counts as a date if it looks like one and the other operand is a date.
    """
    if not (isinstance(left, ox.Literal) and isinstance(right, ox.Literal) and isinstance(sign, ox.Literal)):
        return None
    sides = _instants(left, right) or _durations(left, right)
    if sides is None:
        return None
    return _TRUE if _OPERATORS[sign.value](*sides) else _FALSE


def instant(term: Term) -> ox.Literal | None:
    """A date as an xsd:dateTime in UTC that the engine can order."""
    date = _typed(term)
    if date is None:
        return None
    if date.has_time and date.zone not in ("", "Z"):
        return ox.Literal(date.text(), datatype=_DATE_TIME)
    return ox.Literal(Date(date.parts, date.fraction, True, "Z").text(), datatype=_DATE_TIME)


def date_time(term: Term) -> ox.Literal | None:
    """The cast to xsd:dateTime of anything that looks like a date."""
    date = _any(term)
    return None if date is None else ox.Literal(date.text(), datatype=_DATE_TIME)


def day(term: Term) -> ox.Literal | None:
    """The cast to xsd:date of anything that looks like a date."""
    date = _any(term)
    return None if date is None else ox.Literal(date.day_text(), datatype=_DATE)


def _part(index: int) -> Callable[[Term], ox.Literal | None]:
    def part(term: Term) -> ox.Literal | None:
        date = _any(term)
        return None if date is None else ox.Literal(str(date.parts[index]), datatype=_INTEGER)

    return part


def _any(term: Term) -> Date | None:
    return _typed(term) or (
        parse_date(term.value, typed=False)
        if isinstance(term, ox.Literal) and term.datatype in _UNTYPED
        else None
    )


def _typed(term: Term) -> Date | None:
    return (
        parse_date(term.value) if isinstance(term, ox.Literal) and term.datatype.value in DATE_TYPES else None
    )


def _instants(left: ox.Literal, right: ox.Literal) -> tuple[int, int] | None:
    if _typed(left) is None and _typed(right) is None:
        return None
    dates = _any(left), _any(right)
    if dates[0] is None or dates[1] is None:
        return None
    return dates[0].instant, dates[1].instant


def _durations(left: ox.Literal, right: ox.Literal) -> tuple[float, float] | None:
    if _DURATION not in (left.datatype, right.datatype):
        return None
    seconds = _seconds(left), _seconds(right)
    if seconds[0] is None or seconds[1] is None:
        return None
    return seconds[0], seconds[1]


def _seconds(literal: ox.Literal) -> float | None:
    if literal.datatype == _DURATION:
        match = _DURATION_TEXT.fullmatch(literal.value)
        if match is None:
            return None
        sign, days, hours, minutes, seconds = match.groups(default="0")
        total = int(days) * 86_400 + int(hours) * 3_600 + int(minutes) * 60 + float(seconds)
        return -total if sign == "-" else total
    try:
        return float(literal.value)
    except ValueError:
        return None


_NAMES: dict[str, Callable[..., Term | None]] = {
    "compare": compare,
    "instant": instant,
    "dateTime": date_time,
    "date": day,
    "year": _part(0),
    "month": _part(1),
    "day": _part(2),
}
FUNCTIONS = {ox.NamedNode(FUNCTION_NAMESPACE + name): function for name, function in _NAMES.items()}
