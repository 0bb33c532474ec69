"""The stages of a logical form, and files that hold none."""

from __future__ import annotations

import json

import pytest

from kbqa.errors import DatasetError
from kbqa.logical_forms.checking import CheckStage, FormFailure, check_forms, read_records


def stages(*forms):
    """The failures of some forms, as (stage, part of the reason)."""
    report = check_forms({"qid": number, "s_expression": form} for number, form in enumerate(forms))
    return report, [(failure.stage, failure.reason) for failure in report.failures]


def test_a_form_passes_all_stages():
    report, failures = stages("(AND film.film (JOIN film.film.starring m.0abc))")
    assert (report.records, report.parsed, report.round_tripped, report.compiled, report.actions) == (1,) * 5
    assert (failures, report.ok) == ([], True)


def test_a_form_that_no_action_builds_is_ok_for_all_that():
    report, [(stage, reason)] = stages("film.film")
    assert (stage, report.actions, report.ok) == (CheckStage.ACTIONS, 0, True)
    assert "no action gives the members of a bare class (film.film)" in reason


def test_a_form_that_cannot_be_compiled_is_not_ok():
    report, [(stage, reason)] = stages("(TC (JOIN a.b m.0a) a.b.middle 2009)")
    assert (stage, report.parsed, report.compiled, report.ok) == (CheckStage.COMPILED, 1, 0, False)
    assert "begins or ends no interval" in reason


@pytest.mark.parametrize(
    ("record", "id_", "reason"),
    [
        ({"qid": 7, "s_expression": "(JOIN"}, "7", ""),
        ({"qid": 7}, "7", "the record has no s_expression"),
        ({"s_expression": 3}, "", "the record has no s_expression"),
        ("(JOIN a b)", "", "the record has no s_expression"),
    ],
)
def test_a_record_without_a_readable_form_is_told_by_its_place(record, id_, reason):
    report = check_forms([{"qid": 1, "s_expression": "(JOIN a.b m.0a)"}, record])
    [failure] = report.failures
    assert isinstance(failure, FormFailure)
    assert (failure.record, failure.id, failure.stage) == (2, id_, CheckStage.PARSED)
    assert failure.reason.startswith(reason)
    assert (report.records, report.parsed, report.ok) == (2, 1, False)


def test_records_are_read_as_they_are_published(tmp_path):
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([{"qid": 1, "s_expression": "(JOIN a.b m.0a)"}]))
    assert check_forms(read_records(path)).ok


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "is not a list of records"),
        ("[]", "is not a list of records"),
    ],
)
def test_a_file_without_records_is_told(tmp_path, content, says):
    path = tmp_path / "dev.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DatasetError, match=says):
        read_records(path)
