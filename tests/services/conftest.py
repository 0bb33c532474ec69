"""Real services as processes: what the tests of trainer and rollout worker start and kill."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from kbqa.datasets import load_dataset
from kbqa.kg.catalog import GraphCatalog

_START_S = 120.0  # a busy machine takes its time over importing torch
_PATIENCE_MS = 60_000  # and over drawing pages


class Service:
    """One service process, its URL, and its log."""

    def __init__(self, name: str, home: Path, environment: dict[str, str]) -> None:
        self.name, self.home, self._environment = name, home, environment
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / f"{name}-{self.port}.log"
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen:
        command = [sys.executable, "-P", "-m", f"services.{self.name}", "--port", str(self.port)]
        # What a test needs of data it names itself; the machine's own would change what it finds.
        inherited = {name: value for name, value in os.environ.items() if name != "KBQA_DATA"}
        environment = {**inherited, **self._environment, "KBQA_HOME": str(self.home)}
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def ready(self) -> Service:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"{self.name} is not ready: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self, timeout_s: float = 20) -> int:
        self.process.terminate()
        return self.process.wait(timeout_s)

    def start_again(self) -> None:
        assert self.process.poll() is not None
        self.process = self._spawn()


StartService = Callable[..., Service]


@pytest.fixture(scope="session")
def graph_home(tmp_path_factory) -> Path:
    """A KBQA_HOME with the generated world of seed 1."""
    home = tmp_path_factory.mktemp("graphs")
    text = load_dataset("world", seed=1).graph
    assert text is not None
    (home / "world.txt").write_text(text)
    catalog = GraphCatalog(home)
    catalog.load("world", home / "world.txt")
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
def broker_url(redis_url: str) -> str:
    """An empty database of the real Redis."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return redis_url


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A KBQA_HOME of the test module's own."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def start_service(home: Path, broker_url: str, graph_server: Service) -> Iterator[StartService]:
    """Starts services that share a home, a broker and a graph; kills them when the module is done.

    `start_service("trainer", KBQA_TRAINER_MAX_RESTARTS="1")`
    """
    started: list[Service] = []

    def start(name: str, **environment: str) -> Service:
        values = {
            "KBQA_REDIS_URL": broker_url,
            "KBQA_KG_SERVER_URL": graph_server.url,
            "KBQA_TRAINER_THREADS": "1",  # tests share the machine
            **environment,
        }
        service = Service(name, home, values)
        started.append(service)
        return service

    yield start
    for service in started:
        if service.process.poll() is None:
            service.kill()


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


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Headless Chromium; its event loop would be in the way of other modules' own."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium here: install Debian's package chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=_PATIENCE_MS)
    arguments = ["--no-sandbox", "--disable-quic", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """`open_page(url, width=…)` opens a page; at the end nothing may have been refused or have failed.

    With `failing=True` answers of 400 and above are expected, and so is what the console says of them.
    """
    contexts, complaints = [], []

    def open_(url: str, *, width: int = 1280, height: int = 900, failing: bool = False, **options: object):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(_PATIENCE_MS)

        # What a policy of the page forbids is told on the console, too.
        def heard(message):
            expected = failing and message.text.startswith("Failed to load resource")
            if message.type in ("error", "warning") and not expected:
                complaints.append(message.text)

        def requested(request):
            if not request.url.startswith(url[:16]):
                complaints.append(request.url)

        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", requested)
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
