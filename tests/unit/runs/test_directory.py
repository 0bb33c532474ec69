"""A run's files: found by its name, read while they are written, and never another's."""

from __future__ import annotations

import json

import pytest

from kbqa.errors import RunConflictError, RunError, RunNotFoundError
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits, State

RECIPE = load_recipe("kg-r1-small")


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


def test_a_run_is_found_by_its_id_and_holds_what_was_asked_for(runs):
    made = runs.create(RECIPE, "world", SplitLimits(test=3), 7)
    assert made.id.startswith("world-")
    record = runs.get(made.id).read()
    assert (record.dataset, record.seed, record.limits.test) == ("world", 7, 3)
    assert record.state is State.RUNNING
    assert record.resolved_recipe() == RECIPE


def test_a_name_is_taken_once(runs):
    runs.create(RECIPE, "world", SplitLimits(), 1, name="mine")
    with pytest.raises(RunConflictError, match="kbqa resume mine"):
        runs.create(RECIPE, "world", SplitLimits(), 1, name="mine")


@pytest.mark.parametrize("name", ["none", "../mine", "", ".", "mine/../mine"])
def test_there_is_no_run_of_another_name(runs, name):
    runs.create(RECIPE, "world", SplitLimits(), 1, name="mine")
    with pytest.raises(RunNotFoundError):
        runs.get(name)


def test_runs_are_listed_oldest_first_and_only_runs_are(runs, tmp_path):
    assert runs.all() == []
    for name in ("second", "first"):
        runs.create(RECIPE, "world", SplitLimits(), 1, name=name)
    first = runs.get("first")
    first.write(first.read().model_copy(update={"created_at": "2001-01-01T00:00:00+00:00"}))
    (tmp_path / "runs" / "no-run").mkdir()
    assert [run.id for run in runs.all()] == ["first", "second"]


def test_a_damaged_run_is_named(runs):
    run = runs.create(RECIPE, "world", SplitLimits(), 1, name="mine")
    (run.path / "run.json").write_text("{")
    with pytest.raises(RunError, match="run mine cannot be read"):
        run.read()


def test_a_run_that_cannot_be_read_does_not_hide_the_others(runs, caplog):
    for name in ("mine", "broken"):
        runs.create(RECIPE, "world", SplitLimits(), 1, name=name)
    broken = runs.get("broken").path / "run.json"
    broken.write_text(json.dumps({**json.loads(broken.read_text()), "field_of_the_next_release": 1}))
    for _ in range(3):
        assert [run.id for run in runs.all()] == ["mine"]
    assert [record.run for record in caplog.records] == ["broken"]  # said once


def test_a_run_that_is_done_is_not_gone_on_with(runs):
    run = runs.create(RECIPE, "world", SplitLimits(), 1, name="mine")
    assert run.require_unfinished() == run.read()
    run.write(run.read().model_copy(update={"state": State.DONE}))
    with pytest.raises(RunConflictError, match="kbqa promote mine"):
        run.require_unfinished()


def test_records_are_read_while_one_is_being_written(runs):
    run = runs.create(RECIPE, "world", SplitLimits(), 1)
    assert run.records() == run.newest_records(2) == []
    assert run.progress() == {}
    lines = [json.dumps({"seq": 1, "loss": 2.0}), json.dumps({"loss": 1.0, "seq": 2}), '{"seq": 3, "los']
    run.metrics_path.write_text("\n".join(lines))
    assert [record["seq"] for record in run.records()] == [1, 2]
    assert [record["seq"] for record in run.records(since=1)] == [2]
    assert [record["seq"] for record in run.newest_records(1)] == [2]
