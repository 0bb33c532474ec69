"""A real service as a process, which tests start and kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx

_START_S = 120.0  # a busy machine takes its time over importing torch


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
        self._wait_for(200)
        return self

    def unready(self) -> httpx.Response:
        """Why it is not ready, once it answers at all."""
        return self._wait_for(503)

    def _wait_for(self, status: int) -> httpx.Response:
        deadline = time.monotonic() + _START_S
        answer = None
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            with suppress(httpx.HTTPError):
                answer = httpx.get(f"{self.url}/readyz", timeout=5)
                if answer.status_code == status:
                    return answer
            time.sleep(0.1)
        last = "nothing" if answer is None else answer.text
        raise AssertionError(f"{self.name} last answered {last}: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self, timeout_s: float = 20) -> int:
        self.process.terminate()
        return self.process.wait(timeout_s)

    def start_again(self) -> None:
        assert self.process.poll() is not None
        self.process = self._spawn()
