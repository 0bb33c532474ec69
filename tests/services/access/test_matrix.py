"""Every route of kg_server and trainer, and everybody who may come.

The routes are the applications' own: one that is added without a line here fails. The gateway's are in
tests/services/gateway/access/test_control.py.
"""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from kbqa.kg.catalog import GraphCatalog
from kbqa.telemetry.metrics import Metrics
from services.access.keys import KeyFile
from services.http import operations_app
from services.kg_server.app import create_app as kg_server
from services.kg_server.settings import KgServerSettings
from services.trainer.app import create_app as trainer
from services.trainer.settings import TrainerSettings

CALLERS = ("no key", "wrong key", "key of another graph", "key of the graph", "operator")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
# What each caller gets, in the order of CALLERS.
OPEN = (200,) * 5
ANY_KEY = (401, 401, 200, 200, 200)
OF_GRAPH = (401, 401, 403, 200, 200)


def operator(status: int) -> tuple[int, ...]:
    return 401, 401, 403, 403, status


DOCS = ("/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json")
KG_SERVER = {
    ("GET", "/healthz"): ({}, OPEN),
    ("GET", "/readyz"): ({}, OPEN),
    **{("GET", path): ({}, ANY_KEY) for path in DOCS},
    ("GET", "/v1/kg"): ({}, ANY_KEY),
    ("POST", "/v1/kg/{kg}/actions"): ({"json": {"actions": []}}, OF_GRAPH),
    # A right of its own, which none of these keys has.
    ("POST", "/v1/kg/{kg}/changes"): ({"json": {}}, (401, 401, 403, 403, 403)),
    ("GET", "/v1/kg/{kg}/sparql"): ({"params": {"query": "ASK {}"}}, OF_GRAPH),
    ("POST", "/v1/kg/{kg}/sparql"): ({"data": {"query": "ASK {}"}}, OF_GRAPH),
    ("POST", "/mcp"): ({"json": PING, "headers": {"Accept": "application/json, text/event-stream"}}, ANY_KEY),
}
RUN = "/v1/runs/{run}"
TRAINER = {
    ("GET", "/healthz"): ({}, OPEN),
    ("GET", "/readyz"): ({}, (503,) * 5),  # no broker
    **{("GET", path): ({}, operator(200)) for path in (*DOCS, "/", "/runs/{run}", "/v1/runs")},
    ("GET", "/static/{name}"): ({}, operator(404)),
    ("POST", "/v1/runs"): ({"json": {}}, operator(422)),
    **{
        ("GET", f"{RUN}{path}"): ({}, operator(404))
        for path in (
            "",
            "/metrics",
            "/promotions",
            "/recipe",
            "/versions",
            "/steps",
            "/groups",
            "/groups/{step}/{group}",
            "/export",
        )
    },
    **{("POST", f"{RUN}/{change}"): ({}, operator(404)) for change in ("stop", "resume", "promote")},
}
PLACES = {"kg": "films", "run": "none", "step": "1", "group": "1", "name": "none"}


def routes(app) -> set[tuple[str, str]]:
    """(method, path) of all routes; routers keep theirs."""
    found, pending = set(), list(app.routes)
    while pending:
        route = pending.pop()
        if (router := getattr(route, "original_router", None)) is not None:
            pending += router.routes
        else:
            found |= {(method, route.path) for method in (route.methods or ()) if method != "HEAD"}
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Clients of both services, which know the same keys, and the keys in the order of CALLERS."""
    home = tmp_path_factory.mktemp("home")
    (home / "films.txt").write_text("Big\tstarred\tTom Hanks\n")
    catalog = GraphCatalog(home)
    catalog.load("films", home / "films.txt")
    catalog.close()
    file = KeyFile(home / "keys.json")
    keys = [file.create(name, graphs=graphs)[1] for name, graphs in
            (("other", ("books",)), ("films", ("films",)), ("operator", ("*",)))]  # fmt: skip
    settings = {"home": home, "keys_file": file.path, "redis_url": None}
    graphs = kg_server(KgServerSettings.load(**settings))
    broker = "redis://127.0.0.1:9/0"
    runs = trainer(TrainerSettings.load(home=home, keys_file=file.path, broker_url=broker))
    with TestClient(graphs, "http://127.0.0.1") as client:
        while client.get("/readyz").status_code != 200:
            pass
        yield {"kg_server": client, "trainer": TestClient(runs, "http://127.0.0.1")}, [None, "wrong", *keys]


@pytest.mark.parametrize(
    ("service", "method", "path"),
    [("kg_server", *route) for route in KG_SERVER] + [("trainer", *route) for route in TRAINER],
)
def test_everybody_gets_what_is_theirs(served, service, method, path):
    clients, keys = served
    asked, expected = {"kg_server": KG_SERVER, "trainer": TRAINER}[service][method, path]
    headers = dict(asked.get("headers", {}))
    got = tuple(
        clients[service]
        .request(
            method,
            path.format(**PLACES),
            **asked | {"headers": headers | ({"X-API-Key": key} if key else {})},
        )
        .status_code
        for key in keys
    )
    assert dict(zip(CALLERS, got, strict=True)) == dict(zip(CALLERS, expected, strict=True))


@pytest.mark.parametrize(("service", "known"), [("kg_server", KG_SERVER), ("trainer", TRAINER)])
def test_every_route_has_its_line(served, service, known):
    clients, _ = served
    assert routes(clients[service].app) == set(known)


def test_the_operations_port_has_probes_and_metrics_alone():
    app = operations_app(Metrics(CollectorRegistry()), lambda: None)
    assert routes(app) == {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics")}
