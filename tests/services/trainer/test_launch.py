"""A run that several processes train together, on one machine or two, through real services."""

from __future__ import annotations

import copy
import os
import socket
import sys
import time
from contextlib import suppress

import psutil
import pytest

from tests.services.invariant import assert_every_group_occurs_once

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

_PATIENCE_S = 1200.0  # each start imports torch in several processes


def launcher(trainer) -> psutil.Process:
    (found,) = psutil.Process(trainer.process.pid).children()
    return found


def ranks(launched: psutil.Process) -> list[psutil.Process]:
    """The processes that train, by rank, below the one that launched them."""
    found = [child for child in launched.children() if "services.trainer.run" in child.cmdline()]
    return sorted(found, key=lambda process: int(process.environ()["RANK"]))


def recipe_of_steps(tiny_recipe, steps: int) -> dict:
    recipe = copy.deepcopy(tiny_recipe)
    recipe["schedule"].update(steps=steps, checkpoint_every=2, validate_every=1000)
    recipe["optimisation"]["kl_coefficient"] = 0.01
    return recipe


def test_a_run_of_two_processes_survives_either_of_them_stops_and_ends(
    start_service, client, tiny_recipe, home
):
    start_service("rollout_worker").ready()
    trainer = start_service("trainer", KBQA_TRAINING_PROCESSES="2").ready()
    runs = client(trainer)
    run = runs.start(recipe_of_steps(tiny_recipe, 16))
    runs.wait(run, lambda view: view["phase"] == "rl" and view["step"] >= 4, _PATIENCE_S)
    ranks(launcher(trainer))[1].kill()
    runs.wait(run, lambda view: view["restarts"] == 1 and view["step"] > 6, _PATIENCE_S)

    led, followed = ranks(launcher(trainer))
    led.kill()
    assert psutil.wait_procs([followed], timeout=_PATIENCE_S)[1] == []
    runs.wait(run, lambda view: view["restarts"] == 2 and view["step"] > 8, _PATIENCE_S)

    launched = launcher(trainer)
    orphans = ranks(launched)
    launched.kill()
    assert psutil.wait_procs(orphans, timeout=_PATIENCE_S)[1] == []
    runs.wait(run, lambda view: view["restarts"] == 3 and view["step"] > 10, _PATIENCE_S)

    assert runs.http.post(f"/v1/runs/{run}/stop").json()["state"] == "stopped"
    assert psutil.Process(trainer.process.pid).children(recursive=True) == []
    assert runs.http.post(f"/v1/runs/{run}/resume").json()["state"] == "running"
    view = runs.wait(run, lambda view: view["state"] == "done", _PATIENCE_S)
    outcomes = assert_every_group_occurs_once(home / "runs" / run, view, questions_per_step=4)
    assert outcomes["trained"] > 0
    assert psutil.Process(trainer.process.pid).children(recursive=True) == []


@pytest.fixture
def start_machine(home):
    """`start_machine(environment)` starts what runs on a machine that is not the trainer's."""
    started = []

    def start(environment: dict[str, str]) -> psutil.Process:
        command = [sys.executable, "-P", "-m", "services.trainer.launch"]
        with (home / "machine.log").open("ab") as log:
            process = psutil.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        process.wait()


def test_two_machines_train_together_and_whichever_dies_the_run_goes_on(
    start_service, start_machine, client, tiny_recipe, home
):
    start_service("rollout_worker").ready()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        rendezvous = f"127.0.0.1:{probe.getsockname()[1]}"
    both = {"KBQA_TRAINING_NODES": "2", "KBQA_TRAINING_RENDEZVOUS": rendezvous}
    other = {**both, "KBQA_TRAINING_NODE_RANK": "1"}
    machine = start_machine(other)
    trainer = start_service("trainer", **both).ready()
    runs = client(trainer)
    run = runs.start(recipe_of_steps(tiny_recipe, 12))
    runs.wait(run, lambda view: view["phase"] == "rl" and view["step"] >= 4, _PATIENCE_S)
    (led,), (followed,) = ranks(launcher(trainer)), ranks(machine)
    assert (led.environ()["RANK"], followed.environ()["RANK"]) == ("0", "1")

    followed.kill()
    runs.wait(run, lambda view: view["restarts"] >= 1 and view["step"] > 4, _PATIENCE_S)

    (orphan,) = ranks(machine)
    machine.kill()
    orphan.wait(_PATIENCE_S)
    machine = start_machine(other)
    view = runs.wait(run, lambda view: view["state"] == "done", _PATIENCE_S)
    assert_every_group_occurs_once(home / "runs" / run, view, questions_per_step=4)
    while ranks(machine):
        time.sleep(0.1)
    machine.terminate()
    assert machine.wait(_PATIENCE_S) is not None
