"""An alarm is raised by several steps in a row, is over with the first good one, and survives a restart."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from kbqa.errors import RunError
from kbqa.recipes.learning import GuardsSection
from kbqa.runs.guards import Alarm, Guards
from kbqa.runs.records import StepRecord


def record(**values: float) -> StepRecord:
    """A step in which nothing was remarkable but these values."""
    usual = {"no_spread": 0.0, "not_finite": 0.0, "skipped": False, "staleness": 0.0, "sampled_tokens": 0}
    return StepRecord(**{**usual, "version": "v000001-0", "groups": {}, **values})


def test_nothing_is_watched_unless_the_recipe_says_so() -> None:
    guards = Guards(GuardsSection())
    for step in range(1, 10):
        assert guards.watch(step, record(entropy=0.0, no_spread=1.0, logprob_gap=9.0, kl=9.0)) == []
    assert (guards.raised, guards.stops()) == ({}, None)


@pytest.mark.parametrize(
    ("section", "good", "bad"),
    [
        (GuardsSection(min_entropy=0.1), {"entropy": 0.1}, {"entropy": 0.09}),
        (GuardsSection(max_no_spread=0.5), {"no_spread": 0.5}, {"no_spread": 0.6}),
        (GuardsSection(max_logprob_gap=0.01), {"logprob_gap": 0.01}, {"logprob_gap": 0.02}),
        (GuardsSection(max_kl=1.0), {"kl": 1.0}, {"kl": 1.1}),
    ],
)
def test_each_value_has_its_bound(section: GuardsSection, good: dict, bad: dict) -> None:
    guards = Guards(section)
    records = [bad, bad, good, bad, bad, bad, bad, good]
    raised = [[alarm.name for alarm in guards.watch(step, record(**r))] for step, r in enumerate(records, 1)]
    (name,) = bad
    assert raised == [[], [], [], [], [], [name], [], []]
    assert guards.raised == {}


def test_a_step_that_taught_nothing_says_nothing_of_the_update() -> None:
    guards = Guards(GuardsSection(steps=2, max_kl=1.0))
    steps = [record(kl=2.0), record(), record(kl=2.0)]
    assert [len(guards.watch(step, one)) for step, one in enumerate(steps, 1)] == [0, 0, 1]


def test_an_alarm_says_what_is_wrong_and_ends_the_run_if_it_is_told_to() -> None:
    guards = Guards(GuardsSection(steps=1, min_entropy=0.1, max_kl=1.0, stop_on=("entropy",)))
    assert guards.watch(4, record(entropy=0.5, kl=2.0)) == [Alarm("kl", 2.0, 1.0, since=4)]
    assert guards.stops() is None
    guards.watch(5, record(entropy=0.05, kl=2.0))
    assert guards.stops() == "alarm since step 5: entropy 0.05 is below 0.1"
    assert sorted(guards.raised) == ["entropy", "kl"]


def test_after_a_restart_it_goes_on_counting() -> None:
    section = GuardsSection(steps=2, max_kl=1.0, max_no_spread=0.5, max_not_finite=2)
    guards = Guards(section)
    guards.watch(1, record(kl=2.0))
    guards.watch(2, record(kl=2.0, no_spread=0.9))
    guards.count_not_finite(2, trained=False)
    again = Guards(section)
    again.restore(json.loads(json.dumps(guards.to_json())))
    assert again.raised == guards.raised
    assert [alarm.name for alarm in again.watch(3, record(no_spread=0.9))] == ["no_spread"]
    with pytest.raises(RunError, match="not finite in 2 steps in a row, up to step 3"):
        again.count_not_finite(3, trained=False)


def test_a_step_that_was_trained_ends_the_row() -> None:
    guards = Guards(GuardsSection(max_not_finite=2))
    for step, trained in enumerate((False, True, False, True), 1):
        guards.count_not_finite(step, trained)


def test_an_alarm_that_cannot_be_raised_cannot_end_a_run() -> None:
    with pytest.raises(ValidationError, match="'kl' has no bound"):
        GuardsSection(stop_on=("kl",))
