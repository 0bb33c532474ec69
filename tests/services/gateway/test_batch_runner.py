"""Answering the lines of batches: in turn, in several processes, and across kills."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry

from kbqa.client.models import AnswerResponse, Usage
from kbqa.errors import GraphNotFoundError, PolicyUnavailableError
from kbqa.telemetry.metrics import Metrics
from services.gateway.access.errors import QuotaExceededError
from services.gateway.batches import running
from services.gateway.batches.files import AnswersFile, BatchFiles
from services.gateway.batches.running import BatchRunner

USAGE = Usage(llm_calls=0, prompt_tokens=0, generated_tokens=0, kg_calls=0, elapsed_ms=0.0)


def document(line):
    return AnswerResponse(
        id="a",
        question=line.question,
        kg=line.kg,
        status="no_answer",
        answers=[],
        runs=[],
        policy="p",
        policy_version="v",
        recipe="r",
        usage=USAGE,
    )


async def at_once(_, line):
    return document(line)


def batches(home, ttl_s=9.0):
    return BatchFiles(home, most_lines=10_000, kept=9, ttl_s=ttl_s)


def questions(count):
    return "".join(f'{{"question": "q{n}", "kg": "films", "id": "{n}"}}\n' for n in range(count)).encode()


def run(files, answer=at_once, unready=lambda: None, until=None, places=4):
    """Answer lines until all batches are done, or until something else holds; returns the runner."""

    def done():
        return all(batch.state() == "done" for batch in files.up_to_date())

    async def play():
        runner = BatchRunner(
            files, answer, unready, Metrics(CollectorRegistry()), places=places, max_line_bytes=1000
        )
        runner.start()
        while not (until or done)():
            await asyncio.sleep(0.01)
        await runner.close()
        return runner

    return asyncio.run(play())


def told(batch):
    return [json.loads(line) for line in b"".join(batch.answers.after(0)).splitlines()]


def test_lines_of_several_batches_are_answered_side_by_side_but_only_so_many(tmp_path):
    files, under_way, most = batches(tmp_path), Counter(), Counter()

    async def slowly(record, line):
        under_way[record.id] += 1
        most[record.id] = max(most[record.id], under_way[record.id])
        await asyncio.sleep(0.005)
        under_way[record.id] -= 1
        return document(line)

    created = [files.create("a", "a", questions(20)) for _ in range(2)]
    run(files, slowly, places=3)
    assert [sorted(int(one["id"]) for one in told(batch)) for batch in created] == [list(range(20))] * 2
    assert [most[batch.record.id] for batch in created] == [3, 3]


def test_a_line_waits_for_the_gateway_and_for_quota_but_not_for_what_does_not_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_LOOK_S", 0.01)
    monkeypatch.setattr(running, "_PAUSES_S", (0.01, 0.01))
    files, failures = batches(tmp_path), {}
    reasons = iter(["kg_server does not answer", None])

    async def moody(_, line):
        errors = {
            "0": [PolicyUnavailableError("not now")],
            "1": [QuotaExceededError("1/day", 0.01)] * 9,
            "2": [GraphNotFoundError("films", [])],
            "3": [PolicyUnavailableError("never")] * 9,
            "4": [ValueError("a fault of ours")],
        }[line.id]
        failures[line.id] = failures.get(line.id, 0) + 1
        if failures[line.id] <= len(errors):
            raise errors[failures[line.id] - 1]
        return document(line)

    batch = files.create("a", "a", questions(5))
    run(files, moody, lambda: next(reasons, None), places=1)
    errors = {one["id"]: one.get("error", {}).get("status") for one in told(batch)}
    assert errors == {"0": None, "1": None, "2": 404, "3": 503, "4": 500}
    assert failures == {"0": 2, "1": 10, "2": 1, "3": 3, "4": 1}


def test_what_a_batch_waits_for_can_be_read(tmp_path):
    files, seen = batches(tmp_path), []

    async def refuse(_, line):
        raise QuotaExceededError("1/day", 60.0)

    batch = files.create("a", "a", questions(1))

    async def play():
        runner = BatchRunner(
            files, refuse, lambda: None, Metrics(CollectorRegistry()), places=1, max_line_bytes=99
        )
        runner.start()
        while not seen:
            await asyncio.sleep(0.01)
            seen.extend(filter(None, [runner.waiting(batch)]))
        await runner.close()
        assert runner.waiting(batch) is None

    asyncio.run(play())
    assert seen == ["more questions than 1/day: ask again in 60 s"]


def test_a_line_that_is_being_answered_when_the_gateway_ends_is_answered_by_the_next_one(tmp_path):
    files, begun = batches(tmp_path), []

    async def forever(_, line):
        begun.append(line.id)
        await asyncio.Event().wait()

    batch = files.create("a", "a", questions(9))
    run(files, forever, until=lambda: len(begun) == 4)
    assert (batch.answers.count, batch.state()) == (0, "running")
    run(batches(tmp_path))
    batch.answers.read()
    assert sorted(one["line"] for one in told(batch)) == list(range(1, 10))


class GrowingFile(io.BytesIO):
    """A file to which the rest of a line is appended while it is read."""

    def open(self, _mode):
        return self

    def __iter__(self):
        yield self.readline()
        self.write(b'"id":"1"}\n')
        self.seek(10)
        yield self.readline()


def test_an_answer_that_is_only_half_written_is_not_read_by_halves():
    answers = AnswersFile(GrowingFile(b'{"line":1,'))
    answers.read()
    assert answers.count == 0


KILLED = """
import asyncio, random, sys
from pathlib import Path
from prometheus_client import CollectorRegistry
from kbqa.telemetry.metrics import Metrics
from services.gateway.batches.running import BatchRunner
from tests.services.gateway.test_batch_runner import batches, document

async def answer(_, line):
    await asyncio.sleep(random.random() * 0.002)
    return document(line)

async def play():
    files, metrics = batches(Path(sys.argv[1])), Metrics(CollectorRegistry())
    runner = BatchRunner(files, answer, lambda: None, metrics, places=4, max_line_bytes=999)
    runner.start()
    await asyncio.Event().wait()

asyncio.run(play())
"""


def killed_when(files, batch, count):
    """A process that answers lines is killed once so many are answered."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(files)])
    try:
        while batch.answers.count < count:
            assert process.poll() is None
            batch.answers.read()
            time.sleep(0.001)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.integration)])
def test_a_killed_process_loses_and_doubles_no_line(tmp_path, kills):
    files = batches(tmp_path)
    batch = files.create("a", "a", questions(2000))
    for kill in range(1, kills + 1):
        killed_when(tmp_path, batch, kill * 2000 // (kills + 1))
        with (batch.directory / "answers.jsonl").open("ab") as file:
            file.write(b'{"line":1,"id":')  # a kill while it writes, which is too seldom to wait for
    before = told(batch)
    run(files)
    assert sorted(int(one["id"]) for one in told(batch)) == list(range(2000))
    assert told(batch)[: len(before)] == before
