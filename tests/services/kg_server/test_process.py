"""The process: settings, start, drain, exit codes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest


@pytest.fixture
def start(home):
    started = []

    def run(*arguments, **environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("KBQA_")}
        process = subprocess.Popen(
            [sys.executable, "-m", "services.kg_server", "--home", str(home), *arguments],
            env=clean | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def ready(port):
    for _ in range(200):
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    return False


def test_sigterm_lets_a_running_query_end_and_exits_with_0(start, port):
    process = start("--port", str(port))
    assert ready(port)
    assert httpx.get(f"http://127.0.0.1:{port}/healthz").json() == {"status": "ok"}
    with socket.create_connection(("127.0.0.1", port)) as connection:
        bomb = "SELECT(COUNT(*)AS?n){?a?b?c.?d?e?f.?g?h?i.?j?k?l}".replace("?", "%3F")
        connection.sendall(
            f"GET /v1/kg/films/sparql?query={bomb} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert b"422" in connection.recv(1 << 16).split(b"\r\n")[0]
    assert process.wait(timeout=10) == 0


def test_a_port_in_use_is_said_in_one_line(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--port", str(taken.getsockname()[1]))
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "is in use" in errors
    assert "--port" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"KBQA_KG_SERVER_PROT": "8001"}, 'did you mean "KBQA_KG_SERVER_PORT"'),
        ({"KBQA_KG_SERVER_PORT": "http"}, "KBQA_KG_SERVER_PORT: "),
        ({"KBQA_KG_SERVER_QUERY_DEADLINE_S": "0"}, "KBQA_KG_SERVER_QUERY_DEADLINE_S: "),
    ],
)
def test_a_wrong_setting_is_said_in_one_line(start, environment, message):
    process = start(**environment)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert message in errors
    assert "Traceback" not in errors
