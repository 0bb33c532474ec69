"""Request ids and traces from the gateway over a real kg_server and back."""

from __future__ import annotations

import logging

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from kbqa.kg.catalog import GraphCatalog
from kbqa.telemetry.logs import StructuredFormatter, logged
from kbqa.telemetry.metrics import Metrics
from kbqa.tracing import start_tracing
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from services.http import background, install
from services.kg_server.app import create_app as create_kg_server
from services.kg_server.settings import KgServerSettings
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite

STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))


@pytest.fixture
def client():
    """An application that answers with the id under which it logs."""
    app = FastAPI()
    install(
        app,
        service="toy",
        metrics=Metrics(CollectorRegistry()),
        readiness=lambda: None,
        errors={},
    )

    @app.get("/id")
    def id_() -> str:
        return str(logged("request_id"))

    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize("given", ["abc-1.2:3/4+5=", "x" * 128])
def test_an_id_that_a_request_brings_is_kept(client, given):
    response = client.get("/id", headers={"X-Request-ID": given})
    assert (response.json(), response.headers["x-request-id"]) == (given, given)


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "é".encode(), 'x"y', "a\tb"])
def test_any_other_gets_a_new_one(client, given):
    headers = {"X-Request-ID": given} if given else {}
    first, second = client.get("/id", headers=headers), client.get("/id", headers=headers)
    assert len(first.json()) == 32
    assert first.json() == first.headers["x-request-id"] != second.json()
    assert client.get("/none").headers["x-request-id"]


@pytest.fixture
def stack(tmp_path):
    """A gateway before a kg_server, over HTTP, both in this process."""
    films = tmp_path / "films.txt"
    films.write_text("Big\tstarred\tTom Hanks\n")
    catalog = GraphCatalog(tmp_path)
    catalog.load("films", films)
    catalog.close()
    with background(create_kg_server(KgServerSettings.load(home=tmp_path))) as url:
        settings = GatewaySettings.load(home=tmp_path, kg_server_url=url)
        with TestClient(create_app(settings, FixedPolicy(STARS))) as client:
            yield client


def ask(client, **headers):
    response = client.post(
        "/v1/answer", json={"question": "Who starred in Big?", "kg": "films"}, headers=headers
    )
    assert response.json()["status"] == "answered"
    return response


def test_one_id_is_in_the_logs_of_the_question_and_goes_to_kg_server(stack, caplog):
    formatter = StructuredFormatter("test", "json")
    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(formatter.format(record))

    handler = Lines()
    logging.getLogger().addHandler(handler)
    caplog.set_level(logging.INFO)
    try:
        ask(stack, **{"X-Request-ID": "mine-1"})
    finally:
        logging.getLogger().removeHandler(handler)
    assert any('"mine-1"' in line and '"audit"' in line for line in lines)


def test_a_trace_goes_from_the_gateway_to_the_engine_and_to_kg_server(stack):
    exporter = InMemorySpanExporter()
    stop = start_tracing("test", exporter, batched=False)
    try:
        ask(stack)
    finally:
        stop()
    spans = exporter.get_finished_spans()
    (root,) = [one for one in spans if one.name == "POST /v1/answer"]
    mine = [one for one in spans if one.context.trace_id == root.context.trace_id]
    names = {one.name for one in mine}
    assert {"policy", "graph", "kg_server POST", "POST /v1/kg/{kg}/actions"} <= names
    by_id = {one.context.span_id: one for one in mine}
    for served in (one for one in mine if one.name == "POST /v1/kg/{kg}/actions"):
        assert by_id[served.parent.span_id].name == "kg_server POST"
        assert served.attributes["kbqa.request_id"] == root.attributes["kbqa.request_id"]
    assert root.attributes["http.response.status_code"] == 200
