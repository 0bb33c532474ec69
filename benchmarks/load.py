"""HTTP servers as processes, and wrk to drive them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

_SCRIPT = Path(__file__).with_name("wrk.lua")
_START_S = 120.0


@dataclass(frozen=True)
class Load:
    """What wrk measured; latencies in milliseconds."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failed: int

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def why_no_wrk() -> str | None:
    """None if wrk can be had, installing it where that is allowed; else what to do."""
    if shutil.which("wrk") is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "--yes", "wrk"], capture_output=True, check=False)
    return (
        None
        if shutil.which("wrk")
        else "skipped: install wrk first (on Debian, as root: apt-get install wrk)"
    )


def drive(
    url: str, bodies: Path, *, clients: int = 4, seconds: int = 10, cache_control: str | None = None
) -> Load:
    """Post bodies drawn at random from a file (one a line), over as many connections as there are clients.

    Raises:
        RuntimeError: requests failed: then there is nothing to report.
    """
    command = [
        "wrk",
        "--threads=1",
        f"--connections={clients}",
        f"--duration={seconds}s",
        f"--script={_SCRIPT}",
    ]
    arguments = [str(bodies), *([cache_control] if cache_control else [])]
    done = subprocess.run([*command, url, "--", *arguments], capture_output=True, text=True, check=True)
    load = Load(**json.loads(done.stdout.splitlines()[-1]))
    if load.failed or not load.requests:
        raise RuntimeError(f"{load.failed} of {load.requests} requests to {url} failed")
    return load


@contextmanager
def serving(command: Sequence[str], ready: str, **environment: str) -> Iterator[tuple[str, int]]:
    """A server process while the block runs; yields its URL and process id.

    Args:
        command: arguments of Python; `--port` and a free one are appended.
        ready: path that answers 200 once the server can be used.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KBQA_")}
    process = subprocess.Popen(
        [sys.executable, *command, "--port", str(port)],
        env={**inherited, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url + ready)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use now, mapped files included."""
    [line] = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")
    ]
    return int(line.split()[1]) * 1024


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"nothing answers at {url}")
