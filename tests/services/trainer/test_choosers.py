"""A recipe of a policy that chooses goes the whole way through real processes, on a tiny encoder.

The others of its kind do so in one process: tests/unit/runs/test_cut_recipes.py.
"""

from __future__ import annotations

import json

import pytest

from kbqa.policies.adapters import AdaptedModel
from kbqa.policies.chooser.model import Chooser
from kbqa.policies.in_process import load_model
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe, recipe_names
from kbqa.runs.directory import RunDirectory
from services.trainer.export import export as export_version
from tests.ledgers import read_ledger
from tests.unit.encoders import save_encoder

STEPS, QUESTIONS = 2, 4
CUT = {
    "schedule.steps": STEPS,
    "schedule.questions_per_step": QUESTIONS,
    "schedule.max_in_flight": QUESTIONS,
    "schedule.checkpoint_every": 1,
    "schedule.validate_every": 2,
    "optimisation.lora.rank": 8,
}


@pytest.fixture(scope="module")
def trainer(start_service):
    start_service("rollout_worker").ready()
    return start_service("trainer").ready()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def every_chooser():
    for name in recipe_names():
        if name.endswith("-chooser"):
            yield pytest.param(name, marks=() if name == "kg-r1-chooser" else pytest.mark.integration)


@pytest.mark.parametrize("name", list(every_chooser()))
def test_a_recipe_that_chooses_goes_the_whole_way(trainer, client, home, encoder, tmp_path, name):
    runs = client(trainer)
    recipe = load_recipe(name, {**CUT, "base_model": str(encoder)})
    run = runs.start(recipe.model_dump(mode="json"))
    view = runs.wait(run, lambda view: view["state"] == "done")
    directory = home / "runs" / run

    assert set(view["f1"]) == {"base", "rl"}  # no cold start, and so no gold program
    assert set(json.loads((directory / "summary.json").read_text())["f1"]) == {"base", "rl"}
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "step"]
    assert [record["step"] for record in steps] == list(range(1, STEPS + 1))
    # What the trainer makes of a choice is what the worker drew it with, as long as both have one version.
    assert steps[0]["skipped"] or steps[0]["logprob_gap"] < 1e-3
    settled = read_ledger(directory)["settled"]
    assert sorted(settled) == [f"t{number:07d}" for number in range(len(settled))]

    store = PolicyStore(home / "policies")
    versions = json.loads((directory / "progress.json").read_text())["results"]["versions"]
    base, last = store.get(run, versions["base"]), store.get(run, versions["rl"])
    assert (base.manifest.kind, last.manifest.kind, last.manifest.base_model) == (
        "full",
        "lora",
        str(encoder),
    )
    held = AdaptedModel.load(last.path, last.manifest.base_model, last.manifest.probe).model
    assert isinstance(held, Chooser)

    weights = tmp_path / "weights"
    export_version(store, RunDirectory(directory), weights, version=last.id)
    exported = load_model(weights)
    for one, other in zip(exported.parameters(), held.parameters(), strict=True):
        assert one.detach().allclose(other.detach(), atol=1e-6)


def test_a_run_that_uses_no_test_question_is_judged_by_validation(trainer, client, home, encoder):
    runs = client(trainer)
    recipe = load_recipe("kg-r1-chooser", {**CUT, "base_model": str(encoder)})
    run = runs.start(recipe.model_dump(mode="json"), limits={"validation": 3, "test": 0})
    view = runs.wait(run, lambda view: view["state"] == "done")
    records = (home / "runs" / run / "metrics.jsonl").read_text().splitlines()
    splits = {json.loads(line).get("split") for line in records}
    assert (view["split"], set(view["f1"]), splits) == ("validation", {"base", "rl"}, {"validation", None})
    assert (view["summary"]["split"], view["summary"]["questions"]) == ("validation", 3)
