"""A real Virtuoso: what queries mean there, its limits, its authentication, and its death."""

from __future__ import annotations

import json
import threading
import time

import pytest

from kbqa.errors import GraphUnavailableError, QueryTimeoutError
from kbqa.kg.actions import EXECUTE_SPARQL, GET_TAIL_ENTITIES, Action, ErrorKind, Success
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.endpoint.record import AuthKind, Endpoint, ServerKind
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.tools import LocalGraphTools
from tests.dialects import DATA, ROWS, as_asked

pytestmark = pytest.mark.integration

EX = "http://ex.org/"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
HUB_DEGREE = 12_000  # more than the 10,000 rows that a server returns or sorts
# Their products take minutes; the hub's neighbours differ.
BOMB = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER(?c != ?f && ?f != ?i) }"


@pytest.fixture(scope="module")
def hub(virtuoso, tmp_path_factory):
    """The graph of a hub with many neighbours, as an endpoint."""
    file = tmp_path_factory.mktemp("hub") / "hub.nt"
    with file.open("w") as lines:
        for n in range(HUB_DEGREE):
            lines.write(f"<{EX}hub> <{EX}links> <{EX}n{n}> .\n")
            lines.write(f'<{EX}n{n}> <{LABEL}> "node {n:05}"@en .\n')
    virtuoso.load(file, f"{EX}hub")
    return Endpoint(virtuoso.url, (f"{EX}hub",), ServerKind.VIRTUOSO, deadline_s=60)


@pytest.fixture
def connect():
    stores = []

    def make(endpoint: Endpoint) -> EndpointStore:
        stores.append(EndpointStore(endpoint, version="v"))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture(scope="module")
def dialects(virtuoso, tmp_path_factory):
    file = tmp_path_factory.mktemp("dialects") / "dialects.ttl"
    file.write_text(DATA)
    virtuoso.load(file, f"{EX}dialects")
    store = EndpointStore(
        Endpoint(virtuoso.url, (f"{EX}dialects",), ServerKind.VIRTUOSO, deadline_s=60), version="v"
    )
    yield store
    store.close()


@pytest.mark.parametrize(
    "row", [row for row in ROWS if not row.only_embedded], ids=lambda row: row.name.replace(" ", "-")
)
def test_a_query_of_the_table_means_what_it_says(dialects, row):
    rows = json.loads(dialects.query(as_asked(row), deadline_s=60).body)["results"]["bindings"]
    found = [next(iter(binding.values()))["value"].rpartition("/")[2] for binding in rows]
    assert (found if "ORDER" in row.query else sorted(found)) == row.expected


def test_a_hub_beyond_the_server_s_row_limit_is_paged_and_walked(hub, connect):
    store = connect(hub)
    for offset in (0, 9_999, HUB_DEGREE - 2):
        page = store.tail_entities([f"{EX}hub"], [f"{EX}links"], limit=3, offset=offset)
        numbers = range(offset, min(offset + 3, HUB_DEGREE))
        assert [item.label for item in page.items] == [f"node {n:05}" for n in numbers]
        assert page.total == HUB_DEGREE
    assert len(store.adjacent([f"{EX}hub"])) == HUB_DEGREE


def test_the_server_s_row_limit_is_told(hub, connect):
    result = connect(hub).query(f"SELECT ?x {{ <{EX}hub> ?p ?x }}", deadline_s=60)
    assert (result.rows, result.truncated) == (10_000, True)


def test_a_partial_result_is_a_timeout(hub, connect, monkeypatch):
    # Virtuoso knows no limit below two seconds; after it, it answers with what it has.
    monkeypatch.setattr("kbqa.kg.endpoint.client._SERVER_SHARE", 0.1)
    with pytest.raises(QueryTimeoutError, match="time limit"):
        connect(hub).query(BOMB, deadline_s=20)


def test_digest_authentication(virtuoso, hub, connect, monkeypatch):
    fields = {"default_graphs": hub.default_graphs, "server": ServerKind.VIRTUOSO, "deadline_s": 60}
    with pytest.raises(GraphUnavailableError, match="401"):
        connect(Endpoint(virtuoso.authenticated_url, **fields)).resolve_entity("node 00001")
    fields |= {"auth": AuthKind.DIGEST, "user": virtuoso.user, "secret_variable": "VIRTUOSO_PASSWORD"}
    monkeypatch.setenv("VIRTUOSO_PASSWORD", virtuoso.password)
    store = connect(Endpoint(virtuoso.authenticated_url, **fields))
    assert store.resolve_entity("node 00001") == (f"{EX}n1",)
    monkeypatch.setenv("VIRTUOSO_PASSWORD", "wrong")
    with pytest.raises(GraphUnavailableError, match="401"):
        store.resolve_entity("node 00002")


def test_attached_by_its_url_alone_it_is_recognised(virtuoso, hub, tmp_path):
    catalog = GraphCatalog(tmp_path)
    info = catalog.attach("hub", Endpoint(virtuoso.url, hub.default_graphs), count_s=60)
    assert (info.triples, info.entities) == (2 * HUB_DEGREE, HUB_DEGREE + 1)
    store = catalog.get("hub")
    assert store._endpoint.server is ServerKind.VIRTUOSO
    store.close()
    catalog.close()


def test_killed_in_mid_query_it_is_unavailable_and_serves_again_after_its_restart(virtuoso, hub, connect):
    store = connect(hub)
    errors: list[Exception] = []

    def bomb():
        try:
            store.query(BOMB, deadline_s=8)
        except Exception as error:
            errors.append(error)

    running = threading.Thread(target=bomb)
    running.start()
    time.sleep(1.5)
    virtuoso.kill()
    running.join(30)
    assert [type(error) for error in errors] == [GraphUnavailableError]
    with pytest.raises(GraphUnavailableError):
        store.resolve_entity("node 00003")
    virtuoso.start_again()
    time.sleep(1.1)
    assert store.resolve_entity("node 00003") == (f"{EX}n3",)


def test_killed_under_load_nothing_is_wrong_or_empty_and_all_is_well_after(virtuoso, hub, connect):
    # With a longer deadline they would wait for the restart, and all succeed.
    impatient = connect(Endpoint(hub.url, hub.default_graphs, hub.server, deadline_s=1.5))
    tools = LocalGraphTools(FixedGraphs({"hub": impatient}), deadline_s=1.5)
    ended = threading.Event()
    outcomes: list[tuple[str, object]] = []

    def actions(n):
        query = f"SELECT ?x {{ <{EX}hub> <{EX}links> ?x . ?x <{LABEL}> ?l FILTER(STR(?l) = 'node {n:05}') }}"
        return [
            Action(GET_TAIL_ENTITIES, {"entity": f"node {n:05}", "relation": LABEL}),
            Action(EXECUTE_SPARQL, {"query": query}),
        ]

    def play(first):
        n = first
        while not ended.is_set():
            for result in tools.execute("hub", actions(n)):
                if isinstance(result, Success):
                    outcomes.append(("ok", result.total))
                else:
                    outcomes.append(("failed", result.kind))
            n = (n + 4) % HUB_DEGREE  # on a fast machine, they get to the end

    players = [threading.Thread(target=play, args=(first,)) for first in range(4)]
    for player in players:
        player.start()
    time.sleep(3)
    virtuoso.kill()
    time.sleep(3)
    virtuoso.start_again()
    time.sleep(3)
    ended.set()
    for player in players:
        player.join(60)
    assert ("ok", 1) in outcomes
    assert ("failed", ErrorKind.BACKEND_UNAVAILABLE) in outcomes
    assert {outcome for outcome in outcomes if outcome[0] == "ok"} == {("ok", 1)}
    transient = {ErrorKind.BACKEND_UNAVAILABLE, ErrorKind.QUERY_TIMEOUT, ErrorKind.OVERLOADED}
    assert {what for outcome, what in outcomes if outcome == "failed"} <= transient
    tools = LocalGraphTools(FixedGraphs({"hub": connect(hub)}), deadline_s=60)
    assert [type(result) for result in tools.execute("hub", actions(11_999))] == [Success, Success]


def test_literals_are_found_among_many_facts(virtuoso, connect, tmp_path):
    # With few facts, Virtuoso plans the query in another way, and finds several literals at once.
    file = tmp_path / "codes.nt"
    with file.open("w") as lines:
        for n in range(3000):
            lines.write(f'<{EX}l{n}> <{EX}code> "c{n % 1000}" .\n<{EX}l{n}> <{EX}next> <{EX}l{n + 1}> .\n')
    virtuoso.load(file, f"{EX}codes")
    store = connect(Endpoint(virtuoso.url, (f"{EX}codes",), ServerKind.VIRTUOSO, deadline_s=60))
    assert store.resolve_entity('"c7"') == ('"c7"',)
    assert store.resolve_entity("c7") == ('"c7"',)
    assert store.resolve_entity('"c1000"') == ()
    many = [f'"c{n}"' for n in range(990, 1010)]
    assert list(store.items([*many, f"{EX}l1"])) == [*many[:10], f"{EX}l1"]
    assert set(store.named(["c8", "c9", "c1001"], limit=5)) == {"c8", "c9"}
