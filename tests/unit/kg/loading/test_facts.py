"""Times of facts: what files may say, and what SPARQL is told."""

from __future__ import annotations

import pyoxigraph as ox
import pytest

from kbqa.errors import ConfigurationError
from kbqa.kg.loading.facts import Calendar, Fact, TimeUnit, statement_quads, time_of


@pytest.mark.parametrize(
    ("unit", "epoch", "count", "date"),
    [
        ("hour", "2014-01-01", "24", "2014-01-02"),
        ("hour", "2014-01-01", "8736", "2014-12-31"),
        ("day", "2014-01-01", "-1", "2013-12-31"),
        ("week", "2014-01-01", "1", "2014-01-08"),
        ("month", "2005-11", "3", "2006-02"),
        ("year", "1900", "98", "1998"),
        ("year", "1900-06-01", "98", "1998-06-01"),
        ("minute", "2014-01-01T00:00:00", "61", "2014-01-01T01:01:00"),
        ("day", "0001-01-01", "30", "0001-01-31"),
    ],
)
def test_a_count_of_units_since_an_epoch_is_a_date_as_precise_as_the_epoch(unit, epoch, count, date):
    assert Calendar(TimeUnit(unit), epoch).date(count) == date


@pytest.mark.parametrize(
    ("unit", "epoch", "count", "reason"),
    [
        ("hour", "2014-01-01", "25", "write --epoch more precisely"),
        ("day", "2014", "1", "write --epoch more precisely"),
        ("day", "2014-01-01", "1.5", "not a whole number of days"),
        ("year", "2014", "9000", "is not a date"),
        ("month", "2014-01-31", "1", "is not a date"),
        ("day", "2014-01-01", "9" * 30, "is not a date"),
    ],
)
def test_a_count_that_is_no_date_is_refused(unit, epoch, count, reason):
    with pytest.raises(ValueError, match=reason):
        Calendar(TimeUnit(unit), epoch).date(count)


@pytest.mark.parametrize("epoch", ["", "14", "2014-13", "2014-02-30", "yesterday!", "2014-01-01T00:00"])
def test_an_epoch_that_is_no_date_is_refused(epoch):
    with pytest.raises(ConfigurationError, match="is not a valid epoch"):
        Calendar(TimeUnit.DAY, epoch)


@pytest.mark.parametrize(
    ("start", "end", "time"),
    [
        ("2014-05-13", None, "2014-05-13"),
        ("2005-02", "2008-10", "2005-02; 2008-10"),
        ("2005-02", "2005", "2005-02; 2005"),
        ("2005", "2005", "2005"),
        ("2005", "", "2005; .."),
        ("", "2005", "..; 2005"),
        ("-0044", "0014", "-0044; 0014"),
        ("2014-05-13T10:00:00Z", None, "2014-05-13T10:00:00Z"),
    ],
)
def test_dates_are_kept_as_they_stand(start, end, time):
    assert time_of(start, end, None) == time


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        ("384", None, "--time-unit and --epoch"),
        ("2014-02-30", None, "is not a date"),
        ("2014-05-13T25:00:00", None, "is not a date"),
        ("", None, "is not a date"),
        ("", "", "neither start nor end"),
        ("2008", "2005-02", "ends at 2005-02, before its start 2008"),
        ("2008-03", "2008-02-28", "before its start"),
    ],
)
def test_times_that_are_none_are_refused(start, end, reason):
    with pytest.raises(ValueError, match=reason):
        time_of(start, end, None)


def test_a_counted_end_of_minus_one_is_no_end():
    calendar = Calendar(TimeUnit.HOUR, "2014-01-01")
    assert time_of("48", "-1", calendar) == "2014-01-03"
    assert time_of("48", "72", calendar) == "2014-01-03; 2014-01-04"


def test_a_dated_fact_is_a_statement_with_typed_ends():
    quad = ox.Quad(*(ox.NamedNode(f"urn:{name}") for name in "srt"))

    def said(time):
        return {q.predicate.value.rpartition("#")[2]: q.object for q in statement_quads(Fact(quad, time))}

    statement = said("2005-02; 2008-10-01")
    assert (statement["subject"], statement["predicate"], statement["object"]) == tuple(quad)[:3]
    assert str(statement["urn:kbqa:start"]) == '"2005-02"^^<http://www.w3.org/2001/XMLSchema#gYearMonth>'
    assert str(statement["urn:kbqa:end"]) == '"2008-10-01"^^<http://www.w3.org/2001/XMLSchema#date>'
    assert said("2005")["urn:kbqa:start"] == said("2005")["urn:kbqa:end"]
    assert "urn:kbqa:end" not in said("2005; ..")
    assert "urn:kbqa:start" not in said("..; 2005")
