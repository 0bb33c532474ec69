"""Probes, problem documents, request metrics and serving, shared by all services."""

from __future__ import annotations

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from kbqa.errors import (
    ConfigurationError,
    GraphError,
    GraphNotFoundError,
    KbqaError,
    PortInUseError,
    QueueUnavailableError,
)
from kbqa.telemetry.metrics import Metrics
from services.http import LOOPBACK, background, exit_code, install, serve


@pytest.fixture
def app():
    """An application whose route /fail/{number} fails in several ways; `state.reason` is its readiness."""
    app = FastAPI()
    app.state.reason = None
    failures = [
        GraphNotFoundError("g"),
        GraphError("broken"),
        QueueUnavailableError("gone"),
        RuntimeError("secret"),
    ]
    install(
        app,
        service="toy",
        metrics=Metrics(CollectorRegistry()),
        readiness=lambda: app.state.reason,
        errors={GraphNotFoundError: 404, GraphError: 503},
    )

    @app.get("/fail/{number}")
    def fail(number: int):
        raise failures[number]

    return app


@pytest.fixture
def client(app):
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "status", "kind", "detail"),
    [
        ("/fail/0", 404, "urn:kbqa:problem:graph-not-found", 'no graph named "g"'),
        ("/fail/1", 503, "urn:kbqa:problem:graph", "broken"),
        ("/fail/2", 500, "urn:kbqa:problem:queue-unavailable", "gone"),
        ("/fail/3", 500, "about:blank", "internal error"),
        ("/fail/x", 422, "urn:kbqa:problem:invalid-request", "path.number: "),
        ("/none", 404, "about:blank", "Not Found"),
    ],
)
def test_every_failure_is_a_problem_document(client, path, status, kind, detail):
    response = client.get(path)
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert (response.status_code, document["status"], document["type"]) == (status, status, kind)
    assert document["detail"].startswith(detail)
    assert "secret" not in response.text


def test_readiness_is_asked_again_after_a_second_and_liveness_is_not_readiness(app, client):
    assert client.get("/readyz").json() == {"status": "ready"}
    app.state.reason = "no graph yet"
    time.sleep(1.1)
    response = client.get("/readyz")
    assert (response.status_code, response.json()["detail"]) == (503, "no graph yet")
    assert client.get("/healthz").status_code == 200


def test_requests_are_measured_by_route_template_and_probes_are_not(client):
    for path in ("/fail/0", "/fail/1", "/none/secret", "/healthz"):
        client.get(path)
    text = client.get("/metrics").text
    labels = 'method="GET",route="/fail/{number}",service="toy"'
    assert f'kbqa_http_requests_total{{{labels},status="404"}} 1.0' in text
    assert f'kbqa_http_requests_total{{{labels},status="503"}} 1.0' in text
    assert 'route="unmatched"' in text
    assert "secret" not in text
    assert "healthz" not in text


def test_an_application_can_be_served_in_the_background(app):
    with background(app) as url:
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


def test_a_trusted_proxy_says_who_the_client_is_and_nobody_else_does(app):
    @app.get("/address")
    def address(request: Request) -> str:
        return request.client.host

    def ask(proxies) -> str:
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with background(app, proxies=proxies) as url, httpx.Client(transport=transport) as proxy:
            return proxy.get(f"{url}/address", headers={"X-Forwarded-For": "192.0.2.7"}).json()

    assert ask(LOOPBACK) == "127.0.0.2"
    assert ask(("127.0.0.0/30",)) == "192.0.2.7"


@pytest.mark.integration
def test_a_connection_is_kept_for_longer_than_a_few_seconds(app):
    limits = httpx.Limits(keepalive_expiry=60)  # the client itself gives up its connections after 5 s
    with background(app) as url, httpx.Client(base_url=url, limits=limits) as client:
        addresses = []

        @app.get("/port")
        def port(request: Request) -> int:
            return request.client.port

        for _ in range(2):
            addresses.append(client.get("/port").json())
            time.sleep(6)
    assert len(set(addresses)) == 1


def test_a_port_in_use_is_refused_before_anything_starts(app):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError):
            serve(app, "127.0.0.1", port)
        with pytest.raises(PortInUseError), background(app, port=port):
            pass


def test_an_address_of_another_machine_is_a_wrong_setting(app):
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1:8080"):
        serve(app, "192.0.2.1", 8080)


def raises(error):
    def run():
        raise error

    return run


def test_a_process_that_does_not_serve_yet_ends_when_it_is_told_to():
    with pytest.raises(SystemExit) as ended:
        exit_code(lambda: signal.raise_signal(signal.SIGTERM))
    assert ended.value.code == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_errors_of_ours_become_one_line_and_an_exit_code(capsys):
    assert exit_code(lambda: None) == 0
    assert exit_code(raises(ConfigurationError("KBQA_HOME: no"))) == 2
    assert exit_code(raises(KbqaError("broken"))) == 1
    assert capsys.readouterr().err == "error: KBQA_HOME: no\nerror: broken\n"
    with pytest.raises(ZeroDivisionError):
        exit_code(raises(ZeroDivisionError()))


def test_strangers_who_ask_for_readiness_cost_one_look():
    looks = []

    def look() -> None:
        looks.append(1)
        time.sleep(0.3)

    app = FastAPI()
    install(app, service="any", metrics=Metrics(CollectorRegistry()), readiness=look, errors={})
    with background(app) as url, ThreadPoolExecutor(16) as strangers:
        codes = list(strangers.map(lambda _: httpx.get(f"{url}/readyz", timeout=20).status_code, range(32)))
    assert codes == [200] * 32
    assert len(looks) <= 5, "one a second, however many ask"
