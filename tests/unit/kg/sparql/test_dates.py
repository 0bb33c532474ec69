"""Dates against Python's own, and what their spellings have in common."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.kg.sparql.dates import XSD, parse_date


@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_instants_are_those_of_the_calendar(when, offset_minutes):
    zone = datetime.timezone(datetime.timedelta(minutes=offset_minutes))
    sign, minutes = "-" if offset_minutes < 0 else "+", abs(offset_minutes)
    text = f"{when.isoformat()}{sign}{minutes // 60:02}:{minutes % 60:02}"
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    microseconds = (when.replace(tzinfo=zone) - epoch) // datetime.timedelta(microseconds=1)
    assert parse_date(text).instant == microseconds * 1000


@given(st.dates(), st.sampled_from(["%Y", "%Y-%m", "%Y-%m-%d"]), st.sampled_from(["", "Z", "-08:00"]))
def test_every_spelling_begins_at_the_same_instant(when, form, zone):
    date = parse_date(when.strftime(form).rjust(len(form) + 2 if form == "%Y" else 0, "0") + zone)
    spellings = date.spellings()
    assert len(set(spellings)) == len(spellings)
    assert {parse_date(text).instant for text, _ in spellings} == {date.instant}


def test_a_year_is_spelled_as_year_month_day_and_instant():
    assert set(parse_date("1899").spellings()) >= {
        ("1899", XSD + "gYear"),
        ("1899-01", XSD + "gYearMonth"),
        ("1899-01-01", XSD + "date"),
        ("1899-01-01T00:00:00Z", XSD + "dateTime"),
        ("1899", XSD + "dateTime"),
    }


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1966-04", "1966-04-01T00:00:00"),
        ("2011-02-14-08:00", "2011-02-14T00:00:00-08:00"),
        ("1967-08:00", "1967-01-01T00:00:00-08:00"),
        ("-0044-03-15", "-0044-03-15T00:00:00"),
        ("+2010-00-00T00:00:00Z", "2010-01-01T00:00:00Z"),
        ("2015-08-10T12:30:01.250", "2015-08-10T12:30:01.25"),
    ],
)
def test_dates_of_any_precision_are_read(text, written):
    assert parse_date(text).text() == written


@pytest.mark.parametrize(
    "text", ["", "x", "2010-13", "2010-01-32", "2010-1-1", "10:00", "2010-01-01T25:00:00", "1" * 13]
)
def test_what_is_no_date_is_none(text):
    assert parse_date(text) is None


@pytest.mark.parametrize("text", ["24", "+2010", "-0044", "20100101", "2010-1", "20100"])
def test_without_a_type_a_date_has_to_look_like_one(text):
    assert parse_date(text, typed=False) is None
    assert parse_date("2010-01-01", typed=False) is not None
