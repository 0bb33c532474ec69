"""The best weights are those that the recipe says, whatever restarts in between."""

from __future__ import annotations

import json

import pytest

from kbqa.errors import RunError
from kbqa.recipes.learning import BestBySection
from kbqa.runs.selection import Best, Selection


def test_without_a_word_of_the_recipe_nothing_is_chosen() -> None:
    selection = Selection(None)
    selection.after_step({"f1": 1.0})
    selection.at_checkpoint(1, "a")
    assert not selection.after_evaluation(1, "a", {"f1": 1.0})
    assert selection.best is None


@pytest.mark.parametrize(
    ("direction", "best", "chosen"),
    [("max", (1, 0.75), [True, True, False]), ("min", (2, 0.5), [True, False, True])],
)
def test_evaluations_are_compared_in_the_direction_of_the_recipe(direction, best, chosen) -> None:
    selection = Selection(BestBySection(metric="reward", direction=direction))
    values = (0.5, 0.75, 0.5)
    looks = [
        selection.after_evaluation(step, f"v{step}", {"reward": v, "f1": 0.0})
        for step, v in enumerate(values)
    ]
    assert looks == chosen
    assert selection.best is not None
    assert (
        selection.best.step,
        selection.best.value,
    ) == best  # of equals the one that was trained for longer
    assert selection.since_best == {"max": 1, "min": 2}[direction]


def test_by_training_it_is_the_mean_of_the_steps_before_a_checkpoint() -> None:
    selection = Selection(BestBySection(split="train"))
    for f1 in (0.5, 0.7):
        selection.after_step({"f1": f1})
    selection.at_checkpoint(2, "v2")
    assert selection.best == Best(2, "v2", pytest.approx(0.6))
    selection.at_checkpoint(2, "v2")  # stopped: no step since
    assert selection.since_best == 0
    selection.after_step({"f1": 0.55})
    selection.at_checkpoint(3, "v3")
    assert (selection.best.step, selection.since_best) == (2, 1)
    assert not selection.after_evaluation(3, "v3", {"f1": 1.0})


def test_after_a_restart_the_best_is_still_known() -> None:
    selection = Selection(BestBySection())
    selection.after_evaluation(5, "v5", {"f1": 0.5})
    selection.after_evaluation(10, "v10", {"f1": 0.4})
    again = Selection(BestBySection())
    again.restore(json.loads(json.dumps(selection.to_json())))
    assert (again.best, again.since_best) == (Best(5, "v5", 0.5), 1)


def test_a_metric_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(RunError, match=r"best_by.metric: .* no number f2 \(they have: em, f1\)"):
        Selection(BestBySection(metric="f2")).after_evaluation(1, "v", {"f1": 0.5, "em": 0.25, "split": "x"})
