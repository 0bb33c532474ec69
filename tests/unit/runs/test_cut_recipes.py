"""Each small recipe, and each of a policy that chooses, goes the whole way; its numbers are cut to seconds.

In this process. `tests/services/trainer` has runs through services.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from kbqa.datasets import load_dataset
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.adapters import AdaptedModel
from kbqa.policies.chooser.model import Chooser
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe, recipe_names
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits
from kbqa.runs.local import LocalSource, open_run
from kbqa.runs.training import train
from tests.ledgers import read_ledger
from tests.unit.encoders import save_encoder

SMALL = ("kbqa-r1-small", "knowcoder-a1-small", "learning-to-refine-small", "isp-kgr-small")
CHOOSING = tuple(name for name in recipe_names() if name.endswith("-chooser"))
STEPS = 2
CUT = {
    "schedule.steps": STEPS,
    "schedule.questions_per_step": 2,
    "schedule.max_in_flight": 2,
    "schedule.validate_every": 2,
}
CUT_SMALL = {
    **CUT,
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
CUT_CHOOSING = {
    **CUT,
    "schedule.questions_per_step": 4,
    "schedule.max_in_flight": 4,
    "schedule.checkpoint_every": 1,
    "optimisation.lora.rank": 8,
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def graphs(graph_home) -> Iterator[LocalGraphTools]:
    with closing(GraphCatalog(graph_home)) as catalog:
        yield LocalGraphTools(catalog)


@pytest.fixture
def play(tmp_path, graphs):
    """Takes a recipe to its end; returns the run."""

    def play(recipe) -> RunDirectory:
        limits = SplitLimits(validation=2, test=3)
        directory = Runs(tmp_path / "runs").create(recipe, "world", limits, 1)
        with open_run(directory, graphs) as context:
            train(context)
        return directory

    return play


def summary(run: RunDirectory) -> dict:
    return json.loads(run.summary_path.read_text())


def steps(run: RunDirectory) -> list[dict]:
    return [record for record in run.records() if (record["kind"], record["phase"]) == ("step", "rl")]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_recipe_goes_the_whole_way(play, name):
    run = play(load_recipe(name, CUT_SMALL))
    assert set(summary(run)["f1"]) == {"base", "cold_start", "rl"}
    assert [record["step"] for record in steps(run)] == [1, 2]
    assert all(isinstance(record["reward"], float) for record in steps(run))


def test_half_of_the_worlds_questions_and_more_have_the_one_answer_that_a_scalar_dialect_needs():
    splits = load_dataset("world", seed=1).splits.only(load_recipe("learning-to-refine-small").questions.suit)
    assert len(splits.train) > 2000
    assert len(splits.cold_start) > 75
    for split in (splits.train, splits.test):
        assert {len(question.answers) for question in split} == {1}


@pytest.mark.parametrize("name", CHOOSING)
def test_a_recipe_that_chooses_goes_the_whole_way(play, encoder, tmp_path, name):
    run = play(load_recipe(name, {**CUT_CHOOSING, "base_model": str(encoder)}))
    assert set(summary(run)["f1"]) == {"base", "rl"}  # no cold start, and so no gold program
    assert [record["step"] for record in steps(run)] == list(range(1, STEPS + 1))
    # What the trainer makes of a choice is what the player drew it with, as long as both have one version.
    assert steps(run)[0]["skipped"] or steps(run)[0]["logprob_gap"] < 1e-3
    settled = read_ledger(run.path)["settled"]
    assert sorted(settled) == [f"t{number:07d}" for number in range(len(settled))]

    store = PolicyStore(tmp_path / "policies")
    versions = run.progress()["results"]["versions"]
    base, last = store.get(run.id, versions["base"]), store.get(run.id, versions["rl"])
    assert (base.manifest.kind, last.manifest.kind, last.manifest.base_model) == (
        "full",
        "lora",
        str(encoder),
    )
    held = AdaptedModel.load(last.path, last.manifest.base_model, last.manifest.probe).model
    assert isinstance(held, Chooser)


def test_a_choice_that_was_not_offered_is_asked_for_again_and_ends_no_run(tmp_path, graphs, encoder, caplog):
    """Such as a worker's of another release: its tokens are known, but are not options of their turns."""
    asked = Counter[str]()
    recipe = load_recipe("kg-r1-chooser", {**CUT_CHOOSING, "base_model": str(encoder)})
    directory = Runs(tmp_path / "runs").create(recipe, "world", SplitLimits(validation=2, test=3), 1)
    with open_run(directory, graphs) as context:
        execute = context.rollouts._execute

        def answer(request):
            reply = execute(request)
            asked[request.request_id] += 1
            if request.request_id != "t0000001" or asked[request.request_id] > 1:
                return reply
            first, *others = reply.group.members
            tokens = list(first.trajectory.token_ids)
            tokens[first.trajectory.turns[0].start] = tokens[first.trajectory.turns[0].start - 1]
            wrong = replace(first, trajectory=replace(first.trajectory, token_ids=tuple(tokens)))
            group = replace(reply.group, members=(wrong, *others))
            return reply.model_copy(update={"group": group})

        source = LocalSource(answer, recipe.schedule.max_in_flight)
        train(replace(context, rollouts=source))
    assert [record["step"] for record in steps(directory)] == list(range(1, STEPS + 1))
    assert asked["t0000001"] == 2
    (warning,) = [record for record in caplog.records if record.message == "a rollout failed"]
    assert (warning.request, warning.scope) == ("t0000001", "request")
    assert warning.detail.startswith("members.0: token ")
    assert "is not an option of its turn: check that worker local has" in warning.detail
