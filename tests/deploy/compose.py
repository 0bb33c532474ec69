"""compose.yaml as a project of its own: names, ports and a password that nothing else on the machine has."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
TAG = "under-test"
SERVICES = ("kg-server", "rollout-worker", "trainer", "gateway")
# What the CPU stack is made from.
BASES = ("python:3.11-slim-bookworm", "redis:7-bookworm")
_PORTS = ("GATEWAY_PORT", "TRAINER_PORT", "KG_SERVER_PORT")
_QUICK_S = 60.0


def missing() -> str | None:
    """Why no stack can be built here; None if one can."""
    if shutil.which("docker") is None:
        return "no docker command here: install Docker Engine with its compose plugin"
    if _run("docker", "info", check=False).returncode:
        return "no Docker Engine answers: start one, or say where one is by DOCKER_HOST"
    if _run("docker", "compose", "version", check=False).returncode:
        return "docker has no compose plugin here"
    for base in BASES:
        if _run("docker", "image", "inspect", base, check=False).returncode:
            pulled = _run("docker", "pull", "--quiet", base, check=False, timeout_s=600)
            if pulled.returncode:
                return f"the image {base} is not here, and cannot be pulled: {pulled.stderr.strip()[-200:]}"
    return None


class Stack:
    """The stack of a compose project.

    Args:
        directory: for what was said, by everything that ran.
        variables: of compose.yaml, beyond those that keep it apart from other stacks.
    """

    def __init__(self, directory: Path, variables: Mapping[str, str]) -> None:
        self.project = f"kbqa-test-{os.getpid()}"
        self._directory = directory
        ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        self.gateway = f"http://127.0.0.1:{ports['GATEWAY_PORT']}"
        self.trainer = f"http://127.0.0.1:{ports['TRAINER_PORT']}"
        self.key = secrets.token_hex(16)
        self._environment = {
            **os.environ,
            **{name: str(port) for name, port in ports.items()},
            "COMPOSE_PROFILES": "",
            "IMAGE_PREFIX": "",
            "IMAGE_TAG": TAG,
            "REDIS_PASSWORD": secrets.token_hex(16),
            "GRAFANA_PASSWORD": secrets.token_hex(16),
            "SERVICE_KEY": self.key,
            **variables,
        }
        # An empty file in place of what the user's says.
        self._settings = directory / "env"
        self._settings.touch()

    def compose(self, *arguments: str, timeout_s: float = _QUICK_S) -> str:
        """Output of `docker compose …`.

        Raises:
            AssertionError: it failed; says how.
        """
        command = ["docker", "compose", "--env-file", str(self._settings), "--project-name", self.project]
        done = _run(*command, *arguments, check=False, environment=self._environment, timeout_s=timeout_s)
        assert done.returncode == 0, f"docker compose {' '.join(arguments)}: {done.stderr[-3000:]}"
        return done.stdout

    def wait_for(self, url: str, within_s: float) -> httpx.Response:
        """The first answer below 400.

        Raises:
            AssertionError: none came, or a container ended with an error; says what the logs say.
        """
        deadline, reason = time.monotonic() + within_s, "nothing"
        while time.monotonic() < deadline:
            try:
                response = httpx.get(url, timeout=30)
                if response.is_success:
                    return response
                reason = response.text
            except httpx.HTTPError as error:
                reason = repr(error)
            self.refuse_failures()
            time.sleep(2)
        raise AssertionError(f"{url} after {within_s:.0f} s: {reason}\n{self.logs()}")

    def refuse_failures(self) -> None:
        bad = [c for c in self.containers() if c["State"] == "restarting" or c.get("ExitCode", 0) > 0]
        assert not bad, f"{[c['Service'] for c in bad]} failed:\n{self.logs()}"

    def containers(self) -> list[dict[str, Any]]:
        lines = self.compose("ps", "--all", "--format", "json").splitlines()
        return [json.loads(line) for line in lines if line]

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine says of a service's first container."""
        [first, *_] = self.compose("ps", "--all", "--quiet", service).split()
        [found] = json.loads(_run("docker", "inspect", first).stdout)
        return dict(found)

    def logs(self) -> str:
        return self.compose("logs", "--no-color", "--tail", "40")[-8000:]

    def leftovers(self) -> dict[str, list[str]]:
        """What the engine still has of this project, by kind."""
        label = f"label=com.docker.compose.project={self.project}"
        asked = {
            "container": ["ls", "--all", "--quiet"],
            "volume": ["ls", "--quiet"],
            "network": ["ls", "--quiet"],
        }
        found = {
            kind: _run("docker", kind, *words, "--filter", label).stdout.split()
            for kind, words in asked.items()
        }
        return {kind: names for kind, names in found.items() if names}


def image(service: str) -> str:
    """The name of a service's image, as the stack under test builds it."""
    return f"kbqa-{service}:{TAG}" if service == "kg-server" else f"kbqa-{service}:{TAG}-cpu"


def fetch_torch() -> None:
    """Put a CPU build of torch into ./wheels, if this machine's pip finds one where builds may not."""
    wheels = ROOT / "wheels"
    if not list(wheels.glob("torch-*.whl")):
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        [torch] = [line for line in lines if line.startswith("torch==")]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        _run(*command, "--dest", str(wheels), f"{torch}+cpu", check=False, timeout_s=600)


def run_in(name: str, *command: str, options: tuple[str, ...] = ()) -> str:
    """Output of a command in a fresh container of an image, as tightly kept as compose.yaml keeps it."""
    kept = ("--rm", "--read-only", "--network", "none", "--cap-drop", "ALL", "--tmpfs", "/tmp")
    return _run("docker", "run", *kept, *options, name, *command).stdout


def inspect_image(name: str) -> dict[str, Any]:
    [found] = json.loads(_run("docker", "image", "inspect", name).stdout)
    return dict(found)


def remove_images() -> None:
    _run("docker", "image", "rm", *map(image, SERVICES), check=False)


def _run(
    *command: str,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = _QUICK_S,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=check, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=timeout_s
    )


def _free_ports(number: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
