"""A run that two processes train together, through real services."""

from __future__ import annotations

import copy

import psutil
import pytest

from tests.services.invariant import assert_every_group_occurs_once

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def ranks(trainer) -> list[psutil.Process]:
    """The processes that train, below the one that launched them."""
    (launcher,) = psutil.Process(trainer.process.pid).children()
    return [child for child in launcher.children() if "services.trainer.run" in child.cmdline()]


def test_a_run_of_two_processes_survives_one_of_them_stops_and_ends(start_service, client, tiny_recipe, home):
    start_service("rollout_worker").ready()
    trainer = start_service("trainer", KBQA_TRAINING_PROCESSES="2").ready()
    runs, recipe = client(trainer), copy.deepcopy(tiny_recipe)
    recipe["schedule"].update(steps=12, checkpoint_every=2, validate_every=1000)
    recipe["optimisation"]["kl_coefficient"] = 0.01
    run = runs.start(recipe)
    runs.wait(run, lambda view: view["phase"] == "rl" and view["step"] >= 4)
    _, follower = sorted(ranks(trainer), key=lambda process: process.environ()["RANK"])
    follower.kill()
    runs.wait(run, lambda view: view["restarts"] == 1 and view["step"] > 4)

    assert runs.http.post(f"/v1/runs/{run}/stop").json()["state"] == "stopped"
    assert psutil.Process(trainer.process.pid).children(recursive=True) == []
    assert runs.http.post(f"/v1/runs/{run}/resume").json()["state"] == "running"
    view = runs.wait(run, lambda view: view["state"] == "done")
    outcomes = assert_every_group_occurs_once(home / "runs" / run, view, questions_per_step=4)
    assert outcomes["trained"] > 0
    assert psutil.Process(trainer.process.pid).children(recursive=True) == []
