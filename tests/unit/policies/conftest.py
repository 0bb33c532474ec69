"""A policy in a vLLM server, and weights for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kbqa.policies.vllm import VllmPolicy, VllmServer, Weights
from kbqa.telemetry.metrics import Metrics
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import save_model
from tests.unit.policies.fake_vllm import FakeVllm
from tests.unit.policies.vllm_calls import CODEC, TIMEOUT_S, prompt
from tests.unit.policies_fixtures import make_model, make_tokenizer


@pytest.fixture
def fake() -> Iterator[FakeVllm]:
    fake = FakeVllm(make_model(), CODEC)
    yield fake
    fake.stop()


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a request that hangs waits for; set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest.fixture
def policy(fake, metrics) -> Iterator[VllmPolicy]:
    server = VllmServer(fake.url, update_timeout_s=TIMEOUT_S)
    policy = VllmPolicy(server, CODEC, metrics, precision="float32", timeout_s=TIMEOUT_S)
    yield policy
    policy.close()
    server.close()


@pytest.fixture
def weights(tmp_path):
    """`weights(2)` are those of version 2; `kind` and `probe_of` may be others'."""

    def make(number: int, kind="full", probe_of: int | None = None) -> Weights:
        path: Path = tmp_path / f"{number}"
        if not path.exists():
            save_model(make_model(seed=number), make_tokenizer(), path)
        model = make_model(seed=number if probe_of is None else probe_of)
        probe = take_probe(model, prompt("who is Ada ?"))
        version = f"v{number:06d}-aaaaaaaa"
        return Weights(f"run/{version}", version, kind, path, probe)

    return make
