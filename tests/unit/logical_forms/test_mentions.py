"""Numbers and times in questions, and the literals with which values are compared."""

from __future__ import annotations

import pytest

from kbqa.logical_forms.algebra import NOW, XSD, Comparator
from kbqa.logical_forms.mentions import Mentioned, bounds, mentioned


@pytest.mark.parametrize(
    ("text", "numbers", "times"),
    [
        ("who was there?", (), ()),
        ("with more than 7 parts and 1,234,567.5 people", ("7", "1234567.5"), ()),
        ("below -4.5 or 0.25?", ("-4.5", "0.25"), ()),
        ("in 1999.", ("1999",), ("1999",)),
        ("films of 1999, 2001 and again 1999", ("1999", "2001"), ("1999", "2001")),
        ("a board of 15x15, an A320 and a 4K picture", (), ()),
        ("the 3rd of 12 rooms", ("12",), ()),
        ("in May 2009", (), ("2009-05",)),
        ("in Sep. 2009 or dec 2010", (), ("2009-09", "2010-12")),
        ("on May 5, 2009", (), ("2009-05-05",)),
        ("on 5 May 2009", (), ("2009-05-05",)),
        ("on the 21st of December, 2012", (), ("2012-12-21",)),
        ("since 2009-05-01, at most 3", ("3",), ("2009-05-01",)),
        ("from 2009-05", (), ("2009-05",)),
        ("on 31 February 2009 or 2009-13-01", (), ()),
        ("who is married to him now, in 2010?", ("2010",), ("2010", NOW)),
        ("who is currently the president?", (), (NOW,)),
        ("do you know what snow is?", (), ()),
        ("in the year ٢٠٠٩", (), ()),
        ("٣ people in December 9999", (), ("9999-12",)),
    ],
)
def test_worked_mentions(text, numbers, times):
    assert mentioned(text) == Mentioned(numbers, times)


def written(text, datatype):
    return {
        mention: {comparator.value: literal.lexical for comparator, literal in literals.items()}
        for mention, literals in bounds(mentioned(text), XSD + datatype)
    }


def test_after_a_year_is_after_its_last_day():
    assert written("2009", "date") == {
        "2009": {"gt": "2009-12-31", "le": "2009-12-31", "ge": "2009-01-01", "lt": "2009-01-01"}
    }
    assert written("2009", "gYear") == {"2009": dict.fromkeys(("gt", "le", "ge", "lt"), "2009")}
    assert written("2009", "gYearMonth")["2009"]["gt"] == "2009-12"
    assert written("2009", "dateTime")["2009"] == {
        **dict.fromkeys(("gt", "le"), "2009-12-31T23:59:59"),
        **dict.fromkeys(("ge", "lt"), "2009-01-01T00:00:00"),
    }


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("February 2012", "2012-02-29"),
        ("February 2013", "2013-02-28"),
        ("December 9999", "9999-12-31"),
        ("5 May 2009", "2009-05-05"),
    ],
)
def test_after_a_month_is_after_its_last_day(text, last):
    [ends] = written(text, "date").values()
    assert ends["gt"] == ends["le"] == last


def test_a_month_or_day_among_years_is_its_year():
    assert written("5 May 2009", "gYear") == {"2009-05-05": dict.fromkeys(("gt", "le", "ge", "lt"), "2009")}
    assert written("5 May 2009", "gYearMonth")["2009-05-05"]["lt"] == "2009-05"


def test_now_is_no_bound_and_a_time_none_of_numbers():
    assert written("currently", "date") == {}
    assert written("in May 2009", "integer") == {}
    assert list(written("in 1200", "integer")) == ["1200"]


@pytest.mark.parametrize(
    ("number", "datatype", "expected"),
    [
        ("7", "integer", "integer"),
        ("7", "float", "float"),
        ("7.5", "double", "double"),
        ("7.5", "integer", "decimal"),
        ("-7", "nonNegativeInteger", "integer"),
        ("-7.5", "positiveInteger", "decimal"),
    ],
)
def test_a_number_has_a_datatype_that_allows_it(number, datatype, expected):
    [(_, literals)] = bounds(mentioned(number), XSD + datatype)
    assert set(literals) == set(Comparator)
    assert {literal.datatype for literal in literals.values()} == {XSD + expected}
