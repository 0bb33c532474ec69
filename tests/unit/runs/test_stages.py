"""Stages of a curriculum in the rl phase."""

from __future__ import annotations

import pytest

from kbqa.runs.reinforcement import Reinforcement
from tests.unit.runs.reinforced import Killed, records


def stages(until: dict[str, object], **section: object) -> dict[str, object]:
    """A curriculum of two stages, the second of which pays no format."""
    two = [{"name": "first", "until": until}, {"name": "second", "reward": {"w_format": 0.0}}]
    return {"stages": two, **section}


def asked_in_training(context) -> dict[str, str]:
    return {id_: question for id_, question in context.rollouts.questions.items() if id_.startswith("t")}


def stage_records(context) -> list[tuple[int, str]]:
    return [(record["step"], record["name"]) for record in records(context, "stage")]


def test_a_stage_begins_at_its_step_and_its_requests_say_so(begin, tiny_recipe) -> None:
    tiny_recipe["curriculum"] = stages({"steps": 2}, balance="hops")
    context, material, start = begin(steps=4, max_staleness=0, max_in_flight=4, validate_every=100)
    Reinforcement(context, material, start).run()
    assert stage_records(context) == [(2, "second")]
    assert [record["stage"] for record in records(context, "step")] == [0, 0, 1, 1]
    trained = [id_ for id_ in context.rollouts.asked if id_.startswith("t")]
    assert [context.rollouts.stages[id_] for id_ in trained] == [0] * 8 + [1] * 8
    assert {stage for id_, stage in context.rollouts.stages.items() if id_.startswith("e")} == {None}
    assert context.journal.results["stage"] == "second"


def test_a_stage_begins_when_the_evaluation_has_stopped_rising(begin_judged, tiny_recipe) -> None:
    tiny_recipe["curriculum"] = stages({"patience": 2, "metric": "f1"})
    context, material, start = begin_judged(steps=10, validate_every=2)
    context.rollouts.scores["validation"] = [0.25, 0.75, 0.5, 0.5, 0.5]
    Reinforcement(context, material, start).run()
    assert stage_records(context) == [(8, "second")]
    assert records(context, "stage")[0]["reason"] == "f1 has not risen above 0.750 in 2 looks"


def test_a_run_that_is_resumed_is_in_the_stage_that_it_was_in(begin, tiny_recipe) -> None:
    tiny_recipe["curriculum"] = stages({"steps": 3}, balance="hops", strength=0.5)
    numbers = {"steps": 6, "max_staleness": 0, "max_in_flight": 4, "validate_every": 100}
    context, material, start = begin(**numbers, checkpoint_every=2)
    Reinforcement(context, material, start).run()
    undisturbed = asked_in_training(context)

    context, material, start = begin(**numbers, checkpoint_every=2)
    context.rollouts.killed_at = 5 * 4 + 1  # after step 5; what came after the checkpoint of step 4 is undone
    with pytest.raises(Killed):
        Reinforcement(context, material, start).run()
    assert len(records(context, "step")) == 5
    Reinforcement(context, material, start).run()
    assert [record["step"] for record in records(context, "resumed")] == [4]
    assert stage_records(context) == [(3, "second")]
    assert [record["stage"] for record in records(context, "step")] == [0, 0, 0, 1, 1, 1]
    assert asked_in_training(context) == undisturbed


def test_tiers_come_one_after_the_other(begin, tiny_recipe) -> None:
    easy = {"name": "easy", "tiers": ["easy"], "until": {"steps": 1}}
    tiny_recipe["curriculum"] = {"representatives": 1, "stages": [easy, {"name": "all"}]}
    context, material, start = begin(steps=2, max_staleness=0, max_in_flight=4, validate_every=100)
    Reinforcement(context, material, start).run()
    hops = {question.id: question.hops for question in material.questions.train}
    asked = [hops[id_] for key, id_ in sorted(context.rollouts.questions.items()) if key.startswith("t")]
    assert set(asked[:4]) == {1}
    assert len(set(asked[4:])) > 1
