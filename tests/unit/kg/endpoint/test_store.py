"""Graphs at endpoints: attached like a load, asked no more than needed, failing by their own types."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbqa.errors import (
    ConfigurationError,
    GraphUnavailableError,
    QueryError,
    QueryOverloadError,
    QueryRefusedError,
    QuerySyntaxError,
    QueryTimeoutError,
)
from kbqa.kg.actions import EXECUTE_SPARQL, GET_TAIL_ENTITIES, Action, ErrorCode, ErrorKind, Failure, Success
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.endpoint.client import EndpointClient
from kbqa.kg.endpoint.record import Endpoint, ServerKind
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.namespaced import with_namespaces
from kbqa.kg.namespaces import Namespaces
from kbqa.kg.retrieval.distance import Distance, distance
from kbqa.kg.sparql.guard import ResultFormat
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.tools import LocalGraphTools
from tests.sparql_servers import SparqlServer, free_port

EX = "http://ex.org/"
TURTLE = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:big :starred :hanks ; rdfs:label "Big" . :hanks rdfs:label "Tom Hanks" .
:numbers :has {", ".join(map(str, range(300)))} .
"""
STARRED = Action(GET_TAIL_ENTITIES, {"entity": "Big", "relation": f"{EX}starred"})


@pytest.fixture
def server():
    server = SparqlServer(TURTLE)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def queries():
    pool = QueryPool(size=1)
    yield pool
    pool.close()


@pytest.fixture
def connect(queries):
    stores = []

    def make(url: str, *, max_rows=10_000, max_bytes=1 << 20, **fields) -> EndpointStore:
        endpoint = Endpoint(url, **{"deadline_s": 10, **fields})
        stores.append(
            EndpointStore(endpoint, version="v", queries=queries, max_rows=max_rows, max_bytes=max_bytes)
        )
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def catalog(tmp_path, queries):
    return GraphCatalog(tmp_path, queries=queries, recheck_s=0)


def test_an_attached_graph_is_listed_and_opened_like_a_loaded_one(server, catalog):
    info = catalog.attach("films", Endpoint(server.url))
    assert (info.name, info.triples, info.entities) == ("films", 303, 3)
    assert catalog.list() == [info]
    store = catalog.get("films")
    assert store.version == info.version
    assert store.is_remote
    assert store.resolve_entity("Tom Hanks") == (f"{EX}hanks",)
    [found] = LocalGraphTools(catalog).execute("films", [STARRED])
    assert [item.label for item in found.items] == ["Tom Hanks"]
    store.close()


def test_attaching_again_makes_a_new_version(server, catalog):
    first = catalog.attach("films", Endpoint(server.url))
    store = catalog.get("films")
    second = catalog.attach("films", Endpoint(server.url))
    assert second.version != first.version
    assert catalog.get("films").version == second.version
    assert store.resolve_entity("Big") == (f"{EX}big",)  # requests that hold it go on
    store.close()
    catalog.get("films").close()


def test_a_loaded_graph_and_an_attached_one_replace_each_other(server, catalog, tmp_path):
    (tmp_path / "films.txt").write_text("Big\tstarred\tTom Hanks\n")
    catalog.load("films", tmp_path / "films.txt")
    catalog.attach("films", Endpoint(server.url))
    attached = catalog.get("films")
    assert isinstance(attached, EndpointStore)
    catalog.load("films", tmp_path / "films.txt")
    assert isinstance(catalog.get("films"), OxigraphStore)
    attached.close()


def test_what_cannot_be_attached_changes_nothing(server, catalog):
    before = catalog.attach("films", Endpoint(server.url))
    with pytest.raises(GraphUnavailableError):
        catalog.attach("films", Endpoint(f"http://127.0.0.1:{free_port()}/", deadline_s=3))
    server.answer_with(lambda request: request.reply(200, b"<html>hello", "text/html"))
    with pytest.raises(GraphUnavailableError, match="neither true nor false"):
        catalog.attach("films", Endpoint(server.url))
    server.answer_with(lambda request: request.reply(200, b'{"head":{},"boolean":false}'))
    with pytest.raises(ConfigurationError, match="holds no triples"):
        catalog.attach("films", Endpoint(server.url))
    with pytest.raises(ConfigurationError, match="cannot name"):
        catalog.attach("../films", Endpoint(server.url))
    assert catalog.list() == [before]


def test_a_count_that_takes_too_long_is_left_out(server, catalog):
    def slow_to_count(request):
        if "COUNT" in request.form["query"]:
            time.sleep(0.5)
        server.execute(request)

    server.answer_with(slow_to_count)
    info = catalog.attach("films", Endpoint(server.url), count_s=0.1)
    assert (info.triples, info.entities) == (None, None)


def test_a_virtuoso_is_recognised(server, catalog):
    def like_virtuoso(request):
        request.server_version = "Virtuoso/07.20.3229 (Linux)"
        server.execute(request)

    server.answer_with(like_virtuoso)
    catalog.attach("films", Endpoint(server.url))
    store = catalog.get("films")
    server.requests.clear()
    store.resolve_entity("Big")
    assert server.requests
    assert all(int(request["timeout"]) > 1000 for request in server.requests)
    assert ServerKind.of("Apache Jena Fuseki (5.1.0)") is ServerKind.FUSEKI
    store.close()


def test_what_was_asked_is_not_asked_again(server, connect):
    store = connect(server.url)
    for _ in range(3):
        store.tail_entities([f"{EX}big"], [f"{EX}starred"], limit=10)
        store.query("SELECT * { ?s  ?p ?o }")
        store.query("SELECT * { ?s ?p ?o } # again")
    assert len(server.requests) == 2
    for _ in range(2):
        store.query("SELECT (NOW() AS ?now) { }")
    assert len(server.requests) == 4


def test_failures_are_asked_again(server, connect):
    store = connect(server.url)
    server.answer_with(lambda request: request.reply(500, b"broken"))
    for _ in range(2):
        with pytest.raises(QueryError, match="broken"):
            store.query("SELECT * { ?s ?p ?o }")
        with pytest.raises(QueryError, match="broken"):
            store.resolve_entity("Big")
    server.answer_with(server.execute)
    assert store.resolve_entity("Big") == (f"{EX}big",)
    assert store.query("SELECT * { ?s ?p ?o }").rows == 303


def test_what_does_not_parse_or_may_not_run_is_never_sent(server, connect):
    store = connect(server.url)
    with pytest.raises(QuerySyntaxError, match=r"error at 1:\d+"):
        store.query("SELECT * { ?s ?p", deadline_s=10)
    with pytest.raises(QueryRefusedError):
        store.query("SELECT * { SERVICE <http://ex.org/> { ?s ?p ?o } }")
    assert server.requests == []


@pytest.mark.parametrize("query", ["SELECT * { ?s ?p", "SELECT * { ?s ?p ?o }"])
def test_a_query_whose_syntax_cannot_be_checked_in_time_is_not_sent(server, connect, queries, query):
    store = connect(server.url)
    store.query("ASK { ?s ?p ?o }", deadline_s=10)
    server.requests.clear()
    process = queries._idle.get(timeout=10)
    with pytest.raises(QueryOverloadError, match="no query process became free within 0.1 s"):
        store.query(query, deadline_s=0.1)
    queries._idle.put(process)
    os.kill(process._child.pid, signal.SIGSTOP)
    with pytest.raises(QueryTimeoutError, match=r"syntax could not be checked within 0\.1 s: send it again"):
        store.query(query, deadline_s=0.1)
    assert server.requests == []


def test_a_query_is_parsed_and_not_executed_before_it_is_sent(server, connect):
    server.answer_with(lambda request: request.reply(200, b'{"head":{"vars":[]},"results":{"bindings":[]}}'))
    many = " ".join(f"{number}" for number in range(1000))
    long = " ".join(f"VALUES ?v{place} {{ {many} }}" for place in range(5))
    assert connect(server.url).query(f"SELECT * {{ {long} }}", deadline_s=10).rows == 0
    assert len(server.requests) == 1


def test_a_server_s_own_extensions_pass_if_syntax_is_not_checked(server, connect):
    server.answer_with(lambda request: request.reply(200, b'{"head":{"vars":[]},"results":{"bindings":[]}}'))
    extended = "SELECT * { ?s ?p ?o OPTION (TRANSITIVE) }"
    with pytest.raises(QuerySyntaxError):
        connect(server.url).query(extended, deadline_s=10)
    assert connect(server.url, check_syntax=False).query(extended).rows == 0
    assert [request["query"] for request in server.requests] == [extended]


def test_a_query_is_sent_as_the_standard_has_it(server, connect):
    connect(server.url).query(
        "SELECT ?x { ?x ns:film.film.starring ?y FILTER(?x = 1 OR ?y = 2) }", deadline_s=10
    )
    [request] = server.requests
    assert "<http://rdf.freebase.com/ns/film.film.starring>" in request["query"]
    assert "||" in request["query"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"head":{"vars":["s"]}}',
        b'{"head":{"vars":["s"]},"results":{"bindings":[{"s":{"type":"uri"}}]}}',
        b'{"head":{"vars":["s"]},"results":{"bindings":[{"s":7}]}}',
        b'{"head":{"vars":["s"]},"results":{"bindings":[{"s":{"type":"uri","value":"http',
        b"[" * 100_000,
    ],
)
def test_what_is_no_result_is_an_unavailable_graph(server, connect, body):
    server.answer_with(lambda request: request.reply(200, body, "application/sparql-results+json"))
    store = connect(server.url)
    with pytest.raises(GraphUnavailableError, match="not SPARQL results"):
        store.query("SELECT ?s { ?s ?p ?o }")
    with pytest.raises(GraphUnavailableError, match="not SPARQL results"):
        store.resolve_entity("Big")


def test_an_answer_that_is_too_long_keeps_its_whole_rows(server, connect):
    store = connect(server.url, max_bytes=2000)
    result = store.query("SELECT ?s ?o { ?s ?p ?o }")
    assert result.truncated
    assert 5 < result.rows < 303
    rows = json.loads(result.body)["results"]["bindings"]
    assert len(rows) == result.rows
    assert all(set(row) == {"s", "o"} for row in rows)
    graph = store.query("CONSTRUCT WHERE { ?s ?p ?o }")
    assert graph.truncated
    assert graph.body.count(b" .\n") == graph.rows > 5


def test_a_server_s_own_cap_is_told_and_never_makes_a_short_look_up(server, connect):
    def capped(request):
        found = server.store.query(request.form["query"])
        request.reply(200, found.serialize(format=JSON), X_SPARQL_MaxRows="3")

    from pyoxigraph import QueryResultsFormat

    JSON = QueryResultsFormat.JSON
    server.answer_with(capped)
    store = connect(server.url)
    assert store.query("SELECT * { ?s ?p ?o } LIMIT 3").truncated
    assert not store.query("SELECT * { ?s ?p ?o } LIMIT 2").truncated
    with pytest.raises(QueryError, match="cut the answer"):
        store.tail_entities([f"{EX}numbers"], [f"{EX}has"], limit=2)


def test_iris_that_are_none_survive_json_and_are_not_accepted_back(server, connect):
    body = (
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"uri","value":"http://ex.org/a b"}},'
        b'{"x":{"type":"typed-literal","value":"1","datatype":"urn:t"}},'
        b'{"x":{"type":"bnode","value":"nodeID://b1"}}]}}'
    )
    server.answer_with(lambda request: request.reply(200, body, "application/sparql-results+json"))
    store = connect(server.url)
    rows = json.loads(store.query("SELECT ?x { ?x ?p ?o }").body)["results"]["bindings"]
    assert [store.id_of(row["x"]) for row in rows] == ["http://ex.org/a b", '"1"^^<urn:t>', "nodeID://b1"]
    with pytest.raises(QueryError, match="ask for application/sparql-results"):
        store.query("SELECT ?x { ?x ?p ?o }", result=ResultFormat.XML)
    with pytest.raises(QueryError, match="cannot be written"):
        store.entity_term("http://ex.org/a b")


SCHEMA = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
:Unit a owl:Class ; rdfs:label "Unit" . :Malaria a owl:Class ; rdfs:label "Malaria" .
:price rdfs:label "price" . :weight a owl:DatatypeProperty ; rdfs:label "weight" .
:piano rdfs:label "piano" . :steinway a :piano ; :price 7 . :data a :Unit ; rdfs:label "Data Services" .
"""


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("Which Unit is Data Services?", ["data"]),
        ("what is the price and the weight of a unit?", []),
        ("Who plays the piano?", ["piano"]),
        ("Is a piano in Data Services?", ["data"]),
        ("What causes Malaria?", ["Malaria"]),
    ],
)
def test_a_question_does_not_name_the_schema(connect, question, topics):
    server = SparqlServer(SCHEMA)
    try:
        assert [m.id.removeprefix(EX) for m in connect(server.url).link(question)] == topics
    finally:
        server.stop()


@pytest.mark.parametrize("name", ["http://ex.org/x> ?p ?o } #", '"x" ?p', '"a\nb"', "_:b", "\ud800", 'x"\\'])
def test_no_name_changes_what_a_look_up_asks(server, connect, name):
    store = connect(server.url)
    assert store.resolve_entity(name) == ()
    assert store.resolve_relation(name) == ()
    assert store.tail_relations([name], limit=5).total == 0
    assert store.head_entities([name], [name], limit=5).total == 0
    assert store.link(name) == []


def test_a_dead_endpoint_fails_each_action_by_its_type_and_soon(connect):
    store = connect(f"http://127.0.0.1:{free_port()}/sparql", deadline_s=5)
    tools = LocalGraphTools(FixedGraphs({"films": store}), deadline_s=60)
    began = time.monotonic()
    sparql = Action(EXECUTE_SPARQL, {"query": "SELECT * { ?s ?p ?o }"})
    results = tools.execute("films", [STARRED, sparql] * 5)
    assert time.monotonic() - began < 25  # one of the ten waits for its whole deadline, and the others do not
    for result in results:
        assert isinstance(result, Failure)
        assert (result.code, result.kind) == (ErrorCode.SERVER_ERROR, ErrorKind.BACKEND_UNAVAILABLE)


def test_a_slow_endpoint_is_a_timeout_and_never_an_empty_answer(server, connect):
    server.answer_with(lambda request: time.sleep(2))
    store = connect(server.url, deadline_s=0.3)
    [result] = LocalGraphTools(FixedGraphs({"films": store})).execute("films", [STARRED])
    assert isinstance(result, Failure)
    assert result.kind is ErrorKind.QUERY_TIMEOUT
    with pytest.raises(QueryTimeoutError):
        store.query("SELECT * { ?s ?p ?o }", deadline_s=0.5)


def test_execute_sparql_labels_its_rows(server, connect):
    tools = LocalGraphTools(FixedGraphs({"films": connect(server.url)}), deadline_s=10)
    action = Action(EXECUTE_SPARQL, {"query": f"SELECT ?who {{ ?film <{EX}starred> ?who }}"})
    [result] = tools.execute("films", [action])
    assert isinstance(result, Success)
    assert result.items[0]["who"]["id"] == f"{EX}hanks"
    assert result.items[0]["who"]["label"] == "Tom Hanks"


@pytest.fixture
def asked(monkeypatch):
    """(thread, deadline) of each request to an endpoint."""
    requests: list[tuple[int, float]] = []
    ask = EndpointClient.ask

    def recorded(self, query, accept, *, deadline_s, max_bytes):
        requests.append((threading.get_ident(), deadline_s))
        return ask(self, query, accept, deadline_s=deadline_s, max_bytes=max_bytes)

    monkeypatch.setattr(EndpointClient, "ask", recorded)
    return requests


DISTANCE = Action("entity_distance", {"set_a": ["Big"], "set_b": ["Tom Hanks"]})


@pytest.mark.parametrize("namespaces", [Namespaces(), Namespaces((("ex", EX),))], ids=["iris", "short ids"])
@pytest.mark.parametrize(
    "action",
    [
        DISTANCE,
        Action("find_relation", {"entity": "Big", "relation": "starred"}),
        Action("node_relations", {"node": "Big", "question": "who starred in Big?"}),
        Action("search_graph_patterns", {"sparql": f"SELECT DISTINCT ?x {{ ?x <{EX}starred> ?y }}"}),
        STARRED,
    ],
    ids=lambda action: action.name,
)
def test_look_ups_have_the_time_that_their_action_asks_for(server, connect, asked, action, namespaces):
    for asks, least_s, most_s in (({}, 10, 10), ({"timeout_s": 400}, 300, 400), ({"timeout_s": 7}, 10, 10)):
        store = with_namespaces(connect(server.url, check_syntax=False), namespaces)
        store.relations()
        tools = LocalGraphTools(FixedGraphs({"films": store}), deadline_s=10, longest_s=600)
        asked.clear()
        [result] = tools.execute("films", [Action(action.name, {**action.arguments, **asks})])
        assert isinstance(result, Success)
        is_query = action.name == "search_graph_patterns"  # its first request is the query itself
        deadlines = [deadline_s for _, deadline_s in asked][is_query:]
        assert least_s <= min(deadlines) <= max(deadlines) <= most_s
        asked.clear()
        store.resolve_entity("nobody")  # the time ends with the action
        assert {deadline_s for _, deadline_s in asked} == {10}


def test_an_action_does_not_lend_its_time_to_another_at_once(server, connect, asked):
    store = connect(server.url)
    tools = LocalGraphTools(FixedGraphs({"films": store}), longest_s=600)
    both = threading.Barrier(2, timeout=30)

    def slow(request):
        if "Tom Hanks" in request.form["query"]:
            both.wait()
        server.execute(request)

    server.answer_with(slow)

    def threads_deadlines(**asks):
        [result] = tools.execute("films", [Action(DISTANCE.name, {**DISTANCE.arguments, **asks})])
        assert result.details["distance"] == 1
        return [deadline_s for thread, deadline_s in asked if thread == threading.get_ident()]

    with ThreadPoolExecutor(2) as executor:
        usual, longer = executor.submit(threads_deadlines), executor.submit(threads_deadlines, timeout_s=400)
        assert set(usual.result()) == {10}
        assert min(longer.result()) > 300


def test_an_action_s_look_ups_share_its_time(server, connect, asked):
    def slow(request):
        time.sleep(0.3)
        server.execute(request)

    server.answer_with(slow)
    tools = LocalGraphTools(FixedGraphs({"films": connect(server.url)}), longest_s=600)
    tools.execute("films", [Action(DISTANCE.name, {**DISTANCE.arguments, "timeout_s": 400})])
    deadlines = [deadline_s for _, deadline_s in asked]
    assert len(deadlines) > 1
    assert all(later < earlier - 0.25 for earlier, later in zip(deadlines, deadlines[1:], strict=False))


@pytest.mark.parametrize("most", [200, 300])
def test_a_hub_s_neighbours_are_cut_and_a_search_that_lacks_some_is_given_up(
    server, connect, monkeypatch, most
):
    monkeypatch.setattr("kbqa.kg.endpoint.store.MAX_ADJACENT", most)
    monkeypatch.setattr("kbqa.kg.endpoint.reader.WINDOW", 70)
    store = connect(server.url)
    numbers = [f'"{n}"^^<http://www.w3.org/2001/XMLSchema#integer>' for n in range(300)]
    near = store.adjacent([f"{EX}numbers"])
    assert len(near) == most
    assert near <= set(numbers)
    given_up = Distance(None, 1, complete=False)
    assert distance(store, [f"{EX}numbers"], [f"{EX}big"], max_nodes=most) == given_up
    # From the other side, even a neighbour that was cut is near.
    for number in numbers[::50]:
        assert distance(store, [f"{EX}numbers"], [number], max_nodes=most) == Distance(1, 1)
