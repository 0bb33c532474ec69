"""What scenarios with GPUs run starts here, too, with stand-ins for addresses, volumes and vLLM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import psutil
import pytest
import redis

from kbqa.planning.machines import GIB
from services.cli.programs import choose_ports
from services.settings import SERVICES
from tests.deploy.objects import Object, pods, service_of

pytestmark = pytest.mark.chart

_START_S = 180.0  # for four services, on a busy machine
_KEY = "a-key-of-more-than-sixteen-letters"
_PORTS = dict.fromkeys(SERVICES, ("PORT", "OPERATIONS_PORT")) | {"rollout_worker": ("PORT",)}


class Vllm(BaseHTTPRequestHandler):
    """A vLLM that is well, and is asked nothing else."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def vllm_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Vllm) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Node:
    """This machine in place of a cluster's node.

    Attributes:
        urls: of the services, by name.
    """

    def __init__(self, directory: Path, redis_url: str, vllm_url: str) -> None:
        self._directory, self._redis, self._vllm = directory, redis_url, vllm_url
        variables = [f"KBQA_{service.upper()}_{port}" for service in SERVICES for port in _PORTS[service]]
        self._ports = choose_ports("127.0.0.1", variables, {}, free=True)
        self._processes = dict[str, subprocess.Popen[bytes]]()
        self.urls = {
            service: f"http://127.0.0.1:{self._ports[f'KBQA_{service.upper()}_PORT']}" for service in SERVICES
        }

    def command(self, container: Object) -> list[str]:
        program, *arguments = container["command"]
        return [str(Path(sys.executable).with_name(program)), *map(self._here(container), arguments)]

    def environment(self, container: Object) -> dict[str, str]:
        """The container's own variables, and the ports of this machine."""
        given = {v["name"]: v.get("value", _KEY) for v in container["env"]}
        here = self._here(container)
        given = {name: here(re.sub(r"\$\((\w+)\)", lambda m: given[m[1]], v)) for name, v in given.items()}
        own = {name: value for name, value in os.environ.items() if not name.startswith(("KBQA_", "REDIS"))}
        environment = {**own, **given}
        if (service := service_of(container)) is not None:
            own_ports = (f"KBQA_{service.upper()}_{port}" for port in _PORTS[service])
            environment |= {variable: str(self._ports[variable]) for variable in own_ports}
        return environment

    def _here(self, container: Object):
        mounts = sorted(container["volumeMounts"], key=lambda mount: -len(mount["mountPath"]))

        def here(value: str) -> str:
            """A value in which nothing is of the cluster."""
            value = re.sub(r"redis://\S*?@[\w-]+:6379/0", self._redis, value)
            value = value.replace("http://127.0.0.1:8000", self._vllm)
            for service, url in self.urls.items():
                value = re.sub(rf"http://kbqa-{service.replace('_', '-')}:\d+", url, value)
            for mount in mounts:
                if value.startswith(mount["mountPath"]):
                    path = self._directory / mount["name"]
                    path.mkdir(exist_ok=True)
                    return f"{path}{value.removeprefix(mount['mountPath'])}"
            return value

        return here

    def run(self, container: Object) -> subprocess.CompletedProcess[str]:
        """A container that ends by itself."""
        command, environment = self.command(container), self.environment(container)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    @contextmanager
    def started(self, container: Object) -> Iterator[None]:
        """A service, which ends when it is told to."""
        with (self._directory / f"{service_of(container)}.log").open("wb") as log:
            process = subprocess.Popen(
                self.command(container), env=self.environment(container), stdout=log, stderr=log
            )
        self._processes[service_of(container)] = process
        try:
            yield
            assert process.poll() is None
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()

    def wait_ready(self, service: str) -> None:
        deadline = time.monotonic() + _START_S
        answer = "nothing"
        while time.monotonic() < deadline and all(p.poll() is None for p in self._processes.values()):
            with suppress(httpx.HTTPError):
                response = httpx.get(f"{self.urls[service]}/readyz", timeout=10)
                if response.status_code == 200:
                    return
                answer = response.text
            time.sleep(0.2)
        ended = [name for name, process in self._processes.items() if process.poll() is not None]
        logs = [(self._directory / f"{name}.log").read_text()[-2000:] for name in ended or [service]]
        raise AssertionError(f"{service} last answered {answer}; ended: {ended}; {logs}")


@pytest.mark.parametrize(
    ("scenario", "gpus"), [("default", "1 GPU"), ("single-gpu", None), ("multi-node", "8 GPUs")]
)
def test_what_a_scenario_with_gpus_runs_starts_and_works_together(
    chart, scenario, gpus, tmp_path, redis_url, vllm_url
):
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    node = Node(tmp_path, redis_url, vllm_url)
    containers = [container for pod in pods(chart(scenario)) for container in pod.containers]
    [load] = [c for c in containers if c["name"] == "load"]
    loaded = node.run(load)
    assert loaded.returncode == 0, loaded.stderr
    services = {service_of(c): c for c in containers if service_of(c) is not None}
    first_run = [c for c in containers if c["name"] == "begin"]
    assert services.keys() == ({"kg_server", "gateway"} if gpus is None else set(SERVICES))
    assert len(first_run) == (gpus is not None)
    with ExitStack() as running:
        for container in services.values():
            running.enter_context(node.started(container))
        for service in services:
            node.wait_ready(service)
        # The gateway's reader asks kg_server with the generated key.
        asked = {"question": "who directed nothing ?", "kg": "world"}
        answer = httpx.post(f"{node.urls['gateway']}/v1/answer", json=asked, timeout=120)
        assert answer.status_code == 200, answer.text
        # The trainer has no GPU here, and says how many the order needs: as many as the chart gives it.
        if first_run and psutil.virtual_memory().total < 64 * GIB:
            refused = node.run(first_run[0])
            assert refused.returncode == 2, refused.stdout
            assert f"Train on {gpus} of 80 GiB" in refused.stderr
