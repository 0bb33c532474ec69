"""A run in deterministic mode and one that is killed and resumed end with the same losses.

Real processes: trainer, training process, rollout worker, kg_server, Redis.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import torch

from benchmarks.learning.design import load_design
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.training import train
from tests.ledgers import read_ledger
from tests.unit.encoders import save_encoder

STEPS = 20
SMALL = {
    "deterministic": True,
    "rollout.n": 4,
    "rollout.max_turns": 4,
    "rollout.max_turn_tokens": 32,
    "schedule.steps": 4,
    "schedule.questions_per_step": 2,
    "schedule.max_in_flight": 2,
    "schedule.max_staleness": 0,
    "schedule.validate_every": 2,
    "small_policy.vocabulary": 500,
    "small_policy.layers": 1,
    "small_policy.width": 64,
    "small_policy.heads": 2,
    "small_policy.feed_forward": 64,
    "cold_start.demonstrations": 30,
    "cold_start.steps": 150,
    "cold_start.learning_rate": 5e-3,
    "cold_start.batch": 8,
    "cold_start.validate_every": 150,
}
PATIENCE_S = 400.0  # nothing here may hang on how busy the machine is


@pytest.fixture(params=["writes", "chooses"])
def recipe(request, tiny_recipe, tmp_path):
    recipe = copy.deepcopy(tiny_recipe)
    if request.param == "chooses":
        adapter = {"rank": 8, "alpha": 16, "targets": ["query", "key", "value", "dense"]}
        recipe |= {"base_model": str(save_encoder(tmp_path)), "protocol": {"name": "chooser"}}
        recipe["small_policy"] = recipe["cold_start"] = None
        recipe["rollout"].update(max_tokens=16384, max_observation_tokens=4096)
        recipe["optimisation"].update(lora=adapter, token_budget=1_000_000)
    recipe["deterministic"] = True
    # The run is killed in either stage.
    stages = [{"name": "first", "until": {"steps": 9}}, {"name": "second", "reward": {"w_format": 0.25}}]
    recipe["curriculum"] = {"balance": "hops", "strength": 0.5, "stages": stages}
    recipe["rollout"].update(n=3, max_turns=4, max_turn_tokens=32)
    recipe["schedule"].update(
        steps=STEPS,
        questions_per_step=2,
        max_in_flight=2,
        max_staleness=0,
        request_deadline_s=60.0,
        checkpoint_every=3,
        validate_every=1000,
    )
    return recipe


def numbers(directory: Path) -> list[dict[str, float]]:
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    names = (
        "phase",
        "step",
        "loss",
        "gradient_norm",
        "entropy",
        "logprob_gap",
        "reward",
        "f1",
        "turns",
        "stage",
    )
    return [{n: r[n] for n in names if n in r} for r in records if r["kind"] == "step"]


@pytest.mark.integration
@pytest.mark.timeout(4 * PATIENCE_S)
def test_a_killed_run_ends_with_the_losses_of_one_that_was_not(start_service, client, recipe, home) -> None:
    start_service("rollout_worker").ready()
    trainer = start_service("trainer").ready()
    runs = client(trainer)
    undisturbed = runs.start(recipe)
    runs.wait(undisturbed, lambda view: view["state"] == "done", timeout_s=PATIENCE_S)

    killed = runs.start(recipe)
    moment = random.randint(4, STEPS - 2)
    runs.wait(killed, lambda view: view["phase"] == "rl" and view["step"] >= moment, timeout_s=PATIENCE_S)
    (child,) = psutil.Process(trainer.process.pid).children()
    child.kill()
    view = runs.wait(killed, lambda view: view["state"] == "done", timeout_s=PATIENCE_S)
    assert view["restarts"] == 1, f"killed at step {moment}"

    expected, found = numbers(home / "runs" / undisturbed), numbers(home / "runs" / killed)
    assert [row["step"] for row in found if row["phase"] == "rl"] == list(range(1, STEPS + 1))
    assert any(row.get("loss") for row in found if row["phase"] == "rl")
    assert found == expected, f"killed at step {moment}"
    ledgers = [read_ledger(home / "runs" / run) for run in (undisturbed, killed)]
    assert ledgers[0] == ledgers[1]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch computes as in the services of these tests: how a sum is split shows in its last digits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.timeout(2 * PATIENCE_S)
def test_an_ablation_comes_to_the_same_numbers_in_one_process_and_over_queues(
    start_service, client, home, graph_home, tmp_path, one_thread
) -> None:
    variant = load_design().variants["kg-r1-writer"]
    recipe = load_recipe(variant.recipe, {**variant.set, **SMALL})
    start_service("rollout_worker").ready()
    runs = client(start_service("trainer").ready())
    limits = {"train": 20, "validation": 3, "test": 3}
    queued = runs.start(recipe.model_dump(mode="json"), limits=limits, seed=1)
    runs.wait(queued, lambda view: view["state"] == "done", timeout_s=PATIENCE_S)

    directory = Runs(tmp_path / "runs").create(recipe, "world", SplitLimits(**limits), 1)
    with (
        closing(GraphCatalog(graph_home)) as catalog,
        open_run(directory, LocalGraphTools(catalog)) as context,
    ):
        train(context)

    expected, found = numbers(home / "runs" / queued), numbers(directory.path)
    assert [row["step"] for row in found if row["phase"] == "rl"] == [1, 2, 3, 4]
    assert any(row.get("loss") for row in found if row["phase"] == "rl")
    assert found == expected
    newest = [
        PolicyStore(root / "policies").newest(run) for root, run in ((home, queued), (tmp_path, directory.id))
    ]
    assert newest[0] is not None
    assert newest[1] is not None
    assert newest[0].manifest.files["model.safetensors"] == newest[1].manifest.files["model.safetensors"]
