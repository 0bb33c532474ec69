"""Thirty deaths by SIGKILL at random moments of a run, and nothing is lost, done twice or left half.

`KBQA_CHAOS_SEED` chooses other moments; the test prints its own when it fails.
"""

from __future__ import annotations

import copy
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from kbqa.datasets import load_dataset
from kbqa.policies.in_process import load_model
from kbqa.policy_store import PolicyStore
from kbqa.training.checkpoints import Checkpoints
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model, train_tokenizer
from kbqa.wire import QUEUES
from services.broker import create_celery, require_broker
from services.dead_letters import DeadLetters
from tests.service import Service
from tests.services.invariant import assert_every_group_occurs_once
from tests.services.queues import Broker
from tests.vllm_server import Vllm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3000)]

DEATHS = 30
QUESTIONS_PER_STEP, STEPS = 4, 50
_LATEST_STEP = 44  # of a death, so that the run is still going on at the last one
_DOWN_S = (0.0, 2.0)
_PATIENCE_S = 900.0


@dataclass(frozen=True)
class Victim:
    """Something to kill.

    Attributes:
        weight: how often it is chosen beside the others.
        kill: returns whether there was anything to kill.
        revive: starts it again; None if somebody else does that.
    """

    name: str
    weight: int
    kill: Callable[[], bool]
    revive: Callable[[], None] | None


class Stack:
    """Every process of a training run, each on a port of its own that survives it.

    One of the two workers computes in its own process, the other on a vLLM server.
    """

    def __init__(self, home: Path, graphs: Path, vllm: Vllm) -> None:
        self.home, self.vllm = home, vllm
        (home / "redis").mkdir()
        self.redis = Broker(home / "redis")
        self.kg_server = Service("kg_server", graphs, {})
        environment = {
            "KBQA_REDIS_URL": self.redis.url,
            "KBQA_KG_SERVER_URL": self.kg_server.url,
            "KBQA_TRAINER_THREADS": "1",
            "KBQA_TRAINER_MAX_RESTARTS": "1000",  # in a row without a step forward: here they are murders
        }
        self.trainer = Service("trainer", home, environment)
        on_vllm = {
            "KBQA_ENGINE": "vllm",
            "KBQA_VLLM_URL": vllm.url,
            "KBQA_ROLLOUT_WORKER_VLLM_PRECISION": "float32",
        }
        self.workers = [Service("rollout_worker", home, environment | more) for more in ({}, on_vllm)]

    @property
    def services(self) -> list[Service]:
        return [self.kg_server, self.trainer, *self.workers]

    def victims(self) -> list[Victim]:
        def of(service: Service, weight: int) -> Victim:
            return Victim(service.name, weight, lambda: _kill(service), service.start_again)

        return [
            of(self.trainer, 2),
            Victim("training process", 3, self._kill_training_process, None),
            *(of(worker, 2) for worker in self.workers),
            of(self.kg_server, 2),
            Victim("redis", 3, self._kill_redis, self.redis.start),
            Victim("vllm", 2, self._kill_vllm, self.vllm.start),
        ]

    def _kill_redis(self) -> bool:
        self.redis.kill()
        return True

    def _kill_vllm(self) -> bool:
        self.vllm.kill()
        return True

    def _kill_training_process(self) -> bool:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.trainer.process.pid).children():
                child.kill()
                return True
        return False

    def close(self) -> None:
        for service in self.services:
            _kill(service)
        self.redis.kill()


def _kill(service: Service) -> bool:
    if service.process.poll() is not None:
        return False
    service.kill()
    return True


@pytest.fixture
def recipe(tiny_recipe) -> dict[str, Any]:
    """The tiny recipe, with a policy whose weights a vLLM server without a GPU can replace."""
    recipe = copy.deepcopy(tiny_recipe)
    recipe["small_policy"].update(width=64, tied=False)
    recipe["schedule"].update(
        steps=STEPS, questions_per_step=QUESTIONS_PER_STEP, checkpoint_every=3, validate_every=1000
    )
    return recipe


@pytest.fixture
def vllm(start_vllm, recipe, tmp_path) -> Vllm:
    """A vLLM server of a policy of that shape, with whatever weights until a worker loads its own."""
    shape = {name: value for name, value in recipe["small_policy"].items() if name != "warm_up"}
    world = load_dataset("world", seed=1).graph
    tokenizer = train_tokenizer(world.lines(), [], shape["vocabulary"])
    directory = tmp_path / "shape"
    save_model(build_model(tokenizer, SmallPolicyConfig(**shape), seed=0), tokenizer, directory)
    return start_vllm(directory, options=("--max-num-seqs", "32"))


@pytest.fixture
def stack(tmp_path, graph_home, vllm) -> Iterator[Stack]:
    with ExitStack() as closing:
        stack = Stack(tmp_path, graph_home, vllm)
        closing.callback(stack.close)
        wait_until(lambda: is_up(stack.trainer), "the trainer")  # the others come up beside it
        yield stack


def is_up(service: Service) -> bool:
    try:
        return httpx.get(f"{service.url}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def progress(directory: Path) -> tuple[str, int]:
    """Phase and finished steps."""
    with suppress(FileNotFoundError):
        values = json.loads((directory / "progress.json").read_text())
        return values["phase"], values["step"]
    return "", 0


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def state(directory: Path) -> str:
    record = json.loads((directory / "run.json").read_text())
    assert record["state"] != "failed", record["error"]
    return record["state"]


def murder(stack: Stack, directory: Path, rng: random.Random) -> list[str]:
    """Kill thirty times, spread over the run; returns who died when."""
    moments = sorted(rng.uniform(-3, _LATEST_STEP) for _ in range(DEATHS))
    victims, furthest, told = stack.victims(), -1, []
    for moment in moments:

        def reached(moment: float = moment) -> bool:
            nonlocal furthest
            assert state(directory) == "running", "it was over too soon"
            phase, step = progress(directory)
            furthest = max(furthest, step) if phase == "rl" else furthest
            return furthest >= moment

        wait_until(reached, f"step {moment:.0f}")
        time.sleep(rng.uniform(0, 1))
        victim = rng.choices(victims, [v.weight for v in victims])[0]
        wait_until(victim.kill, f"{victim.name} to live")
        told.append(f"{victim.name} at step {furthest}")
        time.sleep(rng.uniform(*_DOWN_S))
        if victim.revive is not None:
            victim.revive()
    return told


def test_thirty_deaths_lose_nothing(stack, recipe):
    seed = int(os.environ.get("KBQA_CHAOS_SEED", "1"))
    rng = random.Random(f"chaos/{seed}")
    body = {"dataset": "world", "recipe": recipe, "limits": {"validation": 2, "test": 3}, "seed": seed}
    response = httpx.post(f"{stack.trainer.url}/v1/runs", json=body, timeout=60)
    assert response.status_code == 201, response.text
    directory = stack.home / "runs" / response.json()["id"]

    told = murder(stack, directory, rng)
    wait_until(lambda: state(directory) == "done", f"the end (seed {seed}; {'; '.join(told)})")

    assert len(told) == DEATHS
    outcomes = assert_every_group_occurs_once(directory, {"step": STEPS}, QUESTIONS_PER_STEP)
    asked = sum(outcomes.values())
    assert asked >= STEPS * QUESTIONS_PER_STEP
    assert outcomes["trained"] + outcomes["no_spread"] == STEPS * QUESTIONS_PER_STEP

    summary = json.loads((directory / "summary.json").read_text())
    store = PolicyStore(stack.home / "policies")
    final = store.get(directory.name, summary["policy"])
    store.verify(final)
    assert load_model(final.path).num_parameters() > 0
    assert_checkpoint_loads(directory, final.path)

    for queue in QUEUES:
        celery = create_celery("test", stack.redis.url, consumes=queue)
        require_broker(celery, wait_s=30)
        assert DeadLetters(celery, queue).counts()["dead"] == 0
        celery.close()


def assert_checkpoint_loads(directory: Path, policy: Path) -> None:
    checkpoints = Checkpoints(directory / "checkpoints", directory.name)
    assert checkpoints.steps()[-1] == STEPS
    checkpoints.load_weights(STEPS, load_model(policy))
