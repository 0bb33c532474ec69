"""A real service as a process, which tests start and kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
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
