"""The broker or the policy store comes and goes; nothing is lost by it."""

from __future__ import annotations

import copy
import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.training.ranks import ALONE
from services.broker import create_celery, require_broker, send
from services.trainer.run import _lead
from services.trainer.supervisor import Exit
from tests.ledgers import read_ledger
from tests.services.queues import Broker, Notes, wait_until


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
    recipe["schedule"].update(steps=20, validate_every=1000)
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
    settled = read_ledger(home / "runs" / run)["settled"]
    assert sorted(settled) == [f"t{number:07d}" for number in range(len(settled))]
    worker.kill()
    trainer.kill()


def test_a_consumer_whose_threads_were_all_busy_when_the_broker_died_goes_on(broker, tmp_path):
    """Kombu loses a prefetch credit with each acknowledgement that fails."""
    consumer = Notes(broker.url, tmp_path / "notes")
    celery = create_celery("test", broker.url)
    require_broker(celery, wait_s=5)
    for _ in range(4):
        send(celery, "notes", "note", "sleep 0.8 a")
    wait_until(lambda: consumer.words.count("a") == 2)  # the other two are being worked on
    broker.kill()
    time.sleep(1.5)  # they end, and cannot be acknowledged
    broker.start()
    require_broker(celery, wait_s=5)
    for _ in range(4):
        send(celery, "notes", "note", "say b")
    wait_until(lambda: consumer.words.count("b") == 4)
    celery.close()
    consumer.kill()


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


def test_a_run_that_is_stopped_while_its_policy_store_is_away_has_not_failed(home, monkeypatch, caplog):
    """Without being stopped, it would wait."""
    directory = Runs(home / "runs").create(load_recipe("kg-r1-chooser"), "world", SplitLimits(), 1)
    asked = []

    def train(context):
        def iterdir(_):
            if asked:
                context.stop.set()
            asked.append(True)
            raise OSError(errno.ESTALE, "Stale file handle")

        monkeypatch.setattr(Path, "iterdir", iterdir)
        context.store.newest(context.run)

    for name, value in {
        "training.train": train, "_obey": lambda _: None, "signal.signal": lambda *_: None,
        "configure_logging": lambda *_: None, "disable_progress_bar": lambda: None,
    }.items():  # fmt: skip
        monkeypatch.setattr(f"services.trainer.run.{name}", value)
    assert _lead(directory, 1, ALONE) is Exit.STOPPED
    [waiting] = [record for record in caplog.records if record.message == "waiting"]
    assert "policies fails (Stale file handle)" in waiting.reason
