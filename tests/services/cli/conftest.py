"""The `kbqa` command as a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from services.cli.__main__ import main
from tests.services.gateway.conftest import kg_server_url  # noqa: F401 (a fixture here, too)


def clean_environment(**variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KBQA_", "REDIS_URL"))}
    return kept | {"COLUMNS": "200"} | variables


@pytest.fixture
def kbqa(tmp_path):
    """Starts `kbqa` with the given arguments under a KBQA_HOME of its own; kills it in the end."""
    started = []

    def start(*arguments, **variables):
        # Tests that a shell has started in the background ignore Ctrl-C, and so would their children.
        inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [sys.executable, "-m", "services.cli", *arguments],
            env=clean_environment(KBQA_HOME=str(tmp_path / "home"), **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        signal.signal(signal.SIGINT, inherited)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(kbqa):
    """Runs `kbqa` to its end: exit code and output."""

    def to_the_end(*arguments, **variables):
        process = kbqa(*arguments, **variables)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    return to_the_end


def family(pid):
    """All descendants of a process."""
    return psutil.Process(pid).children(recursive=True)


def gone(processes, timeout_s):
    """Whether none of them runs any more, at the latest after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while alive := [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
        if time.monotonic() > deadline:
            return alive == []
        time.sleep(0.05)
    return True


@pytest.fixture
def in_process(monkeypatch, capsys, tmp_path):
    """Runs a command in this process, under a KBQA_HOME of its own: exit code, output, errors."""
    for name in list(os.environ):
        if name.startswith("KBQA_") or name == "REDIS_URL":
            monkeypatch.delenv(name)
    monkeypatch.setenv("KBQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command
