"""Real services as processes: what the tests of trainer and rollout worker start and kill."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.service import Service

_PATIENCE_MS = 60_000  # a busy machine takes its time over drawing pages


StartService = Callable[..., Service]


@pytest.fixture(scope="module")
def broker_url(redis_url: str) -> str:
    """An empty database of the real Redis."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return redis_url


@pytest.fixture(scope="module")
def start_service(home: Path, broker_url: str, graph_server: Service) -> Iterator[StartService]:
    """Starts services that share a home, a broker and a graph; kills them when the module is done.

    `start_service("trainer", KBQA_TRAINER_MAX_RESTARTS="1")`

    A home has one trainer at a time, so starting a trainer kills the one before.
    """
    started: list[Service] = []

    def start(name: str, **environment: str) -> Service:
        values = {
            "KBQA_REDIS_URL": broker_url,
            "KBQA_KG_SERVER_URL": graph_server.url,
            "KBQA_TRAINER_THREADS": "1",  # tests share the machine
            "KBQA_TRAINER_RECIPE_DIRECTORIES": "/",  # tests make base models anywhere
            **environment,
        }
        for other in started:
            if other.name == name == "trainer" and other.process.poll() is None:
                other.kill()
        service = Service(name, home, values)
        started.append(service)
        return service

    yield start
    for service in started:
        if service.process.poll() is None:
            service.kill()


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
