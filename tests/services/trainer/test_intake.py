"""Replies go to the disk of their run, or stay in the queue."""

from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry

from kbqa.errors import MessageError
from kbqa.recipes import recipe_from
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import encode
from services.consumer import NotNowError
from services.trainer.app import INTAKE_THREADS
from services.trainer.intake import Intake
from tests.unit.runs.exchange import make_reply


@pytest.fixture
def runs(tmp_path) -> Runs:
    return Runs(tmp_path / "runs")


@pytest.fixture
def run(runs, tiny_recipe):
    return runs.create(recipe_from(tiny_recipe), "world", SplitLimits(), seed=1)


@pytest.fixture
def intake(runs) -> Intake:
    return Intake(runs, Metrics(CollectorRegistry()))


def reply_to(run) -> str:
    return encode(make_reply("t1", "a").model_copy(update={"run": run.id}))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_without_room_leaves_replies_in_the_queue(intake, run, monkeypatch, number):
    real, full = os.fsync, [True]

    def fsync(descriptor: int) -> None:
        if full[0]:
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(NotNowError, match="cannot be stored"):
        intake.take(reply_to(run))
    assert run.inbox.ids() == []
    full[0] = False
    intake.take(reply_to(run))
    assert run.inbox.ids() == ["t1"]


def test_another_error_of_the_disk_counts_as_an_attempt(intake, run, monkeypatch):
    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"):
        intake.take(reply_to(run))


def test_a_reply_to_nobody_is_refused(intake, run):
    with pytest.raises(MessageError):
        intake.take(encode(make_reply("t1", "a").model_copy(update={"run": "none"})))


def test_a_slow_disk_is_waited_for_by_many_replies_at_a_time(intake, run, monkeypatch):
    real, waiting, most = os.fsync, [], 0

    def fsync(descriptor: int) -> None:
        nonlocal most
        waiting.append(descriptor)
        most = max(most, len(waiting))
        time.sleep(0.05)
        waiting.remove(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    replies = [
        encode(make_reply(f"t{number}", "a").model_copy(update={"run": run.id})) for number in range(24)
    ]
    with ThreadPoolExecutor(INTAKE_THREADS) as threads:
        list(threads.map(intake.take, replies))
    assert most > INTAKE_THREADS / 2
    assert len(run.inbox.ids()) == 24


def test_a_reply_is_stored_as_it_came(intake, run):
    message = encode(make_reply("t1", "a" * 9000).model_copy(update={"run": run.id}))
    intake.take(message)
    assert (run.path / "inbox" / "t1.json").read_text() == message
