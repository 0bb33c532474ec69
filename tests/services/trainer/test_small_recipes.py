"""Each paper's small recipe goes the whole way through real processes, its numbers cut down to seconds.

They do so in one process, too: tests/unit/runs/test_cut_recipes.py.
"""

from __future__ import annotations

import json

import pytest

from kbqa.recipes import load_recipe

pytestmark = pytest.mark.integration

SMALL = ("kbqa-r1-small", "knowcoder-a1-small", "learning-to-refine-small", "isp-kgr-small")

CUT = {
    "schedule.steps": 2,
    "schedule.questions_per_step": 2,
    "schedule.max_in_flight": 2,
    "schedule.validate_every": 2,
    "small_policy.vocabulary": 500,
    "small_policy.layers": 1,
    "small_policy.width": 32,
    "small_policy.heads": 2,
    "small_policy.feed_forward": 64,
    "small_policy.warm_up.steps": 5,
    "cold_start.demonstrations": 12,
    "cold_start.steps": 4,
    "cold_start.batch": 4,
    "cold_start.validate_every": 4,
}


@pytest.fixture(scope="module")
def trainer(start_service):
    start_service("rollout_worker").ready()
    return start_service("trainer").ready()


@pytest.mark.parametrize("name", SMALL)
def test_a_small_recipe_goes_the_whole_way(trainer, client, home, name):
    runs = client(trainer)
    recipe = load_recipe(name, CUT)
    run = runs.start(recipe.model_dump(mode="json"))
    view = runs.wait(run, lambda view: view["state"] == "done")
    assert set(view["f1"]) == {"base", "cold_start", "rl"}
    lines = (home / "runs" / run / "metrics.jsonl").read_text().splitlines()
    steps = [record for record in map(json.loads, lines) if record["kind"] == "step"]
    assert [record["step"] for record in steps if record["phase"] == "rl"] == [1, 2]
    assert all(isinstance(record["reward"], float) for record in steps if record["phase"] == "rl")
