"""Numbers and times that a question mentions, as operands of comparisons and time constraints."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from kbqa.logical_forms.algebra import NOW, XSD, Comparator, Literal

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if len(name) > 3 else name for name in _MONTHS)
_TIME = re.compile(
    rf"""
    \b(?: (?P<iso>[0-9]{{4}}-[0-9][0-9](?:-[0-9][0-9])?)
        | (?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})\.?,?\s+(?P<year>[0-9]{{4}})
        | (?P<month2>{_MONTH})\.?\s+(?:(?P<day2>[0-9]{{1,2}})(?:st|nd|rd|th)?,?\s+)?(?P<year2>[0-9]{{4}})
        | (?P<alone>[12][0-9]{{3}})
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.,-])-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?![\w])|(?<![\w.,])-?[0-9]+(?:\.[0-9]+)?(?![\w])"
)
_NOW = re.compile(r"\b(?:now|today|at present|presently|currently|nowadays|at the moment)\b", re.IGNORECASE)
_FIRST, _LAST = "-01-01", "-12-31"
_DATES = frozenset(XSD + name for name in ("date", "dateTime", "gYear", "gYearMonth"))
_FRACTIONAL = frozenset(XSD + name for name in ("decimal", "double", "float"))


@dataclass(frozen=True, slots=True)
class Mentioned:
    """What a question mentions, each once and in order.

    Attributes:
        numbers: as plain decimals, such as `1200` or `7.5`.
        times: a year, a month `2009-05`, a day `2009-05-01`, or `NOW`.
    """

    numbers: tuple[str, ...]
    times: tuple[str, ...]


def mentioned(text: str) -> Mentioned:
    """The numbers and times in a text. A year alone is both."""
    times = {found.start(): time for found in _TIME.finditer(text) if (time := _written(found)) is not None}
    inside = [range(*found.span()) for found in _TIME.finditer(text) if found["alone"] is None]
    numbers = [
        found[0].replace(",", "")
        for found in _NUMBER.finditer(text)
        if not any(found.start() in span for span in inside)
    ]
    now = [NOW] if _NOW.search(text) else []
    return Mentioned(tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys([*times.values(), *now])))


def bounds(found: Mentioned, datatype: str) -> Iterator[tuple[str, dict[Comparator, Literal]]]:
    """The literals with which values of a datatype may be compared, by comparator, for each mention.

    A year or month is compared as the first or last day of it, whichever leaves "after 2009" outside of 2009.

    Args:
        datatype: full IRI of a type of numbers or dates.
    """
    if datatype not in _DATES:
        for number in found.numbers:
            yield number, dict.fromkeys(Comparator, Literal(number, _fitting(number, datatype)))
        return
    for time in found.times:
        if time == NOW:
            continue
        if datatype == f"{XSD}gYear":
            first = last = time[:4]
        elif datatype == f"{XSD}gYearMonth":
            first, last = (time + _FIRST[:3])[:7], (time + _LAST[:3])[:7]
        else:
            first, last = _first_day(time), _last_day(time)
            if datatype == f"{XSD}dateTime":
                first, last = f"{first}T00:00:00", f"{last}T23:59:59"
        ends = {Comparator.GT: last, Comparator.LE: last, Comparator.GE: first, Comparator.LT: first}
        yield time, {comparator: Literal(end, datatype) for comparator, end in ends.items()}


def _fitting(number: str, datatype: str) -> str:
    """The datatype of a number that is compared with values of a datatype."""
    if datatype in _FRACTIONAL:
        return datatype
    # Types of integers do not have fractions, and some have no negative numbers.
    return XSD + ("decimal" if "." in number else "integer")


def _written(found: re.Match[str]) -> str | None:
    """A time in ISO's notation; None if the calendar does not have it."""
    if found["iso"] is not None:
        time = found["iso"]
    elif found["alone"] is not None:
        time = found["alone"]
    else:
        month, day = found["month"] or found["month2"], found["day"] or found["day2"]
        number = 1 + next(at for at, name in enumerate(_MONTHS) if name.startswith(month[:3].lower()))
        time = f"{found['year'] or found['year2']}-{number:02}" + (f"-{int(day):02}" if day else "")
    try:
        date.fromisoformat(_first_day(time))
    except ValueError:
        return None
    return time


def _first_day(time: str) -> str:
    return time + _FIRST[len(time) - 4 :]


def _last_day(time: str) -> str:
    if len(time) == 7:
        _, days = monthrange(int(time[:4]), int(time[5:]))
        return f"{time}-{days:02}"
    return time + _LAST[len(time) - 4 :]
