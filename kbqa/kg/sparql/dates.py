"""Reads dates as data sets write them: ill-typed, of any precision, with and without a time zone.

The queries of CWQ and GrailQA contain `"2015-08-10"^^xsd:dateTime`, `"1967"^^xsd:dateTime`
and `"2011-02-14-08:00"^^xsd:date`, but a dump types the same facts as xsd:date, xsd:gYear
or xsd:gYearMonth. As in Virtuoso, a year or month stands for its first day and a day for its
midnight; two dates are equal if they begin at the same instant. An instant without a time
zone is UTC. The zone of a date without a time is ignored: it is an artefact of the server
that exported it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

XSD = "http://www.w3.org/2001/XMLSchema#"
# The datatypes of literals that stand for instants.
DATE_TYPES = frozenset(XSD + name for name in ("dateTime", "date", "gYearMonth", "gYear"))

# Wikidata writes an unknown month or day as 00.
_DATE = re.compile(
    r"""
    (?P<year>[+-]?\d{1,12}) (?: - (?P<month>\d\d) (?: - (?P<day>\d\d)
        (?: [Tt\x20] (?P<hour>\d\d) : (?P<minute>\d\d)
            (?: : (?P<second>\d\d) (?: \. (?P<fraction>\d{1,18}) )? )? )? )? )?
    (?P<zone> [Zz] | [+-]\d\d:\d\d )?
    """,
    re.VERBOSE,
)
_UNTYPED = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:[Tt]\d\d:\d\d[\d:.]*)?)?)?(?:[Zz]|[+-]\d\d:\d\d)?")
_NANOSECONDS = 10**9


@dataclass(frozen=True, slots=True)
class Date:
    """A date with an optional time.

    Attributes:
        parts: year, month, day, hour, minute, second; missing parts have their first value.
        fraction: of a second, in nanoseconds.
        has_time: whether a time is given.
        zone: time zone as written; empty if there is none.
    """

    parts: tuple[int, int, int, int, int, int]
    fraction: int
    has_time: bool
    zone: str

    @property
    def instant(self) -> int:
        """When the date begins, in nanoseconds from 1970 in UTC; equal dates have equal instants."""
        year, month, day, hour, minute, second = self.parts
        seconds = _days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second
        if self.has_time and self.zone not in ("", "Z"):
            sign = -1 if self.zone[0] == "+" else 1
            seconds += sign * (int(self.zone[1:3]) * 3_600 + int(self.zone[4:6]) * 60)
        return seconds * _NANOSECONDS + self.fraction

    def day_text(self) -> str:
        """The date in the form of xsd:date, without a zone."""
        year, month, day = self.parts[:3]
        return f"{_year_text(year)}-{month:02}-{day:02}"

    def text(self) -> str:
        """The date in the form of xsd:dateTime."""
        hour, minute, second = self.parts[3:]
        fraction = f".{self.fraction:09}".rstrip("0") if self.fraction else ""
        return f"{self.day_text()}T{hour:02}:{minute:02}:{second:02}{fraction}{self.zone}"

    def spellings(self) -> list[tuple[str, str]]:
        """Literals for the same date as (lexical form, datatype), including ill-typed ones."""
        year, month, day = self.parts[:3]
        starts_day = not (any(self.parts[3:]) or self.fraction)
        zones = ("", "Z") if self.zone in ("", "Z") or not self.has_time else (self.zone,)
        local = Date(self.parts, self.fraction, True, "").text()
        found = [(local + zone, "dateTime") for zone in zones]
        if starts_day and zones[0] == "":
            precisions = [("date", self.day_text())]
            if day == 1:
                precisions.append(("gYearMonth", f"{_year_text(year)}-{month:02}"))
            if month == day == 1:
                precisions.append(("gYear", _year_text(year)))
            for datatype, text in precisions:
                found += [(text, datatype), (text + "Z", datatype), (text, "dateTime")]
        return [(text, XSD + datatype) for text, datatype in found]


def parse_date(text: str, *, typed: bool = True) -> Date | None:
    """Read a date of any precision.

    Args:
        text: the lexical form of a literal.
        typed: whether the literal has a date type. Otherwise the text must look like a date and
            begin with a year of four digits.

    Returns:
        The date, or None if the text is not one.
    """
    text = text.strip()
    match = _DATE.fullmatch(text) if typed or _UNTYPED.fullmatch(text) else None
    if match is None:
        return None
    year, month, day, hour, minute, second = (
        int(match[name] or 0) for name in ("year", "month", "day", "hour", "minute", "second")
    )
    if month > 12 or day > 31 or hour > 24 or minute > 59 or second > 60:
        return None
    return Date(
        (year, month or 1, day or 1, hour, minute, second),
        int((match["fraction"] or "0")[:9].ljust(9, "0")),
        match["hour"] is not None,
        (match["zone"] or "").upper(),
    )


def _year_text(year: int) -> str:
    return f"{year:05}" if year < 0 else f"{year:04}"


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the proleptic Gregorian calendar; years have no bounds.

    Counted in years that begin in March, so that the leap day is the last
    (Howard Hinnant, "chrono-compatible low-level date algorithms", days_from_civil).
    """
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
