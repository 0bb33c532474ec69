"""The SPARQL Protocol over HTTP: deadlines, bounds, tries, and what servers say of failures."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import threading
import time

import httpcore
import pytest

from kbqa.errors import (
    ConfigurationError,
    GraphUnavailableError,
    QueryError,
    QueryMemoryError,
    QueryOverloadError,
    QuerySyntaxError,
    QueryTimeoutError,
)
from kbqa.kg.endpoint.client import EndpointClient
from kbqa.kg.endpoint.record import AuthKind, Endpoint, ServerKind
from tests.sparql_servers import SparqlServer, free_port

JSON = "application/sparql-results+json"
ASK = "ASK {}"
PROMPTLY_S = 10.0  # less than whoever waits in vain would take, and enough for a busy machine


@pytest.fixture
def server():
    server = SparqlServer("<urn:s> <urn:p> <urn:o> .")
    yield server
    server.stop()


@pytest.fixture
def connect():
    """A client of an endpoint; closed at the end."""
    clients = []

    def make(url: str, **fields) -> EndpointClient:
        clients.append(EndpointClient(Endpoint(url, **fields)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def ask(client, query=ASK, deadline_s=5.0, max_bytes=1 << 20):
    return client.ask(query, JSON, deadline_s=deadline_s, max_bytes=max_bytes)


def in_turn(*answers):
    """Answers one request each; the last answers all that follow."""
    left = list(answers)
    lock = threading.Lock()

    def answer(request):
        with lock:
            current = left.pop(0) if len(left) > 1 else left[0]
        current(request)

    return answer


def status(code, body=b"", **headers):
    return lambda request: request.reply(code, body, **headers)


def hang_up(request):
    request.close_connection = True
    request.connection.shutdown(socket.SHUT_RDWR)


def test_a_query_is_sent_with_its_graphs_and_time_limit(server, connect):
    graph = "http://ex.org/g"
    client = connect(server.url, default_graphs=(graph,), server=ServerKind.VIRTUOSO)
    answer = ask(client, "SELECT * { ?s ?p ?o }", deadline_s=40)
    assert answer.complete
    assert answer.media_type == JSON
    assert b"urn:o" in answer.body
    [sent] = server.requests
    assert sent["default-graph-uri"] == graph
    assert 30_000 < int(sent["timeout"]) < 40_000


@pytest.mark.parametrize(
    ("kind", "limit"),
    [(ServerKind.QLEVER, "2.000s"), (ServerKind.FUSEKI, "2.000"), (ServerKind.VIRTUOSO, "2000")],
)
def test_each_server_is_told_its_limit_as_it_reads_it(kind, limit):
    assert kind.time_limit(2) == {"timeout": limit}
    assert ServerKind.OTHER.time_limit(2) == {}


def test_connections_are_kept(server, connect):
    client = connect(server.url)
    ports = set()

    def answer(request):
        ports.add(request.client_address[1])
        server.execute(request)

    server.answer_with(answer)
    for _ in range(5):
        ask(client)
    assert len(ports) == 1


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again(server, connect, code):
    server.answer_with(in_turn(status(code), status(code), server.execute))
    assert ask(connect(server.url)).complete
    assert len(server.requests) == 3


SAYS = "SR172: Transaction deadlocked"
DEADLOCKED = status(500, f"Virtuoso 40001 Error {SAYS}\n\nSPARQL query:\nASK {{}}".encode())
DEADLOCKED_LATE = status(200, b"{}", **{"X-SQL-State": "00000", "X-SQL-Message": SAYS})


@pytest.mark.parametrize("deadlocked", [DEADLOCKED, DEADLOCKED_LATE])
def test_a_query_that_was_given_up_because_of_a_deadlock_is_tried_again(server, connect, deadlocked):
    server.answer_with(in_turn(deadlocked, deadlocked, server.execute))
    assert ask(connect(server.url)).complete
    assert len(server.requests) == 3


def test_a_deadlock_that_does_not_pass_is_an_overload(server, connect):
    server.answer_with(DEADLOCKED)
    with pytest.raises(QueryOverloadError, match="Transaction deadlocked.*try again later"):
        ask(connect(server.url), deadline_s=1)
    assert len(server.requests) >= 2


def test_a_server_that_stays_overloaded_is_unavailable_within_the_deadline(server, connect):
    server.answer_with(status(503, b"busy"))
    client = connect(server.url)
    began = time.monotonic()
    with pytest.raises(GraphUnavailableError, match="503.*busy"):
        ask(client, deadline_s=2)
    assert time.monotonic() - began < PROMPTLY_S
    assert 2 <= len(server.requests) <= 10


def test_retry_after_is_waited_for_and_never_past_the_deadline(server, connect):
    server.answer_with(in_turn(status(429, Retry_After="0.4"), server.execute))
    began = time.monotonic()
    ask(connect(server.url))
    assert time.monotonic() - began > 0.4
    server.answer_with(status(429, Retry_After="100"))
    client = connect(server.url)
    began = time.monotonic()
    with pytest.raises(GraphUnavailableError):
        ask(client, deadline_s=60)
    assert time.monotonic() - began < PROMPTLY_S


def test_a_broken_connection_is_tried_once_more(server, connect):
    server.answer_with(in_turn(hang_up, server.execute))
    assert ask(connect(server.url)).complete
    server.answer_with(hang_up)
    server.requests.clear()
    with pytest.raises(GraphUnavailableError, match="broke the connection"):
        ask(connect(server.url))
    assert len(server.requests) == 2


def test_half_an_answer_is_no_answer(server, connect):
    def half(request):
        request.send_response(200)
        request.send_header("Content-Type", JSON)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b'{"head":{"vars":["s"]},"results":{"bindings":[')
        hang_up(request)

    server.answer_with(half)
    with pytest.raises(GraphUnavailableError, match="broke the connection"):
        ask(connect(server.url))


@pytest.fixture
def long_pause(monkeypatch):
    """What is found out is remembered for as long as a busy machine may take for a test."""
    monkeypatch.setattr("kbqa.kg.endpoint.client._PAUSE_S", 600.0)


def test_a_refused_connection_is_unavailable_and_found_out_once(connect, long_pause):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # so that nobody else listens there
        client = connect(f"http://127.0.0.1:{closed.getsockname()[1]}/sparql")
        with pytest.raises(GraphUnavailableError, match="cannot be reached"):
            ask(client, deadline_s=0.5)
        for _ in range(20):
            with pytest.raises(GraphUnavailableError, match="could not be reached a moment ago"):
                ask(client)


def test_a_deadline_that_passes_while_connecting_does_not_blame_the_query(connect, long_pause, monkeypatch):
    """As on a busy machine, where the last attempt begins just before the deadline."""
    attempts = []

    async def open_connection(*arguments, **options):
        attempts.append(arguments)
        if len(attempts) > 1:
            await asyncio.sleep(60)
        raise httpcore.ConnectError("refused")

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", open_connection)
    client = connect("http://127.0.0.1:9/sparql")
    with pytest.raises(GraphUnavailableError, match="cannot be reached in time"):
        ask(client, deadline_s=0.5)
    asked = len(attempts)
    with pytest.raises(GraphUnavailableError, match="could not be reached a moment ago"):
        ask(client)
    assert len(attempts) == asked


def test_a_deadline_that_has_passed_before_is_not_the_servers_fault(server, connect, long_pause):
    client = connect(server.url)
    with pytest.raises(QueryError):
        ask(client, deadline_s=-0.1)
    assert ask(client).complete


def test_a_server_that_comes_back_is_used_again(connect):
    port = free_port()
    client = connect(f"http://127.0.0.1:{port}/sparql")
    with pytest.raises(GraphUnavailableError):
        ask(client, deadline_s=2.0)
    server = SparqlServer(port=port)
    try:
        time.sleep(1.1)
        assert ask(client).complete
    finally:
        server.stop()


def silent(request):
    request.rfile.read(1)  # until the client hangs up


def dripping(request):
    """A header, then a byte at a time."""
    request.send_response(200)
    request.end_headers()
    for _ in range(600):
        request.wfile.write(b" ")
        time.sleep(0.05)


def dripping_head(request):
    for _ in range(600):
        request.wfile.write(b"H")
        time.sleep(0.05)


@pytest.mark.parametrize("slow", [silent, dripping, dripping_head])
def test_the_deadline_holds_whatever_the_server_does(server, connect, slow):
    server.answer_with(slow)
    client = connect(server.url)
    began = time.monotonic()
    with pytest.raises((QueryTimeoutError, GraphUnavailableError)):
        ask(client, deadline_s=0.5)
    assert time.monotonic() - began < PROMPTLY_S


def test_an_endless_body_is_cut(server, connect):
    sent = 0

    def endless(request):
        nonlocal sent
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b"x" * 65536)
            sent += 65536

    server.answer_with(endless)
    answer = ask(connect(server.url), max_bytes=100_000)
    assert not answer.complete
    assert len(answer.body) == 100_000
    time.sleep(0.2)
    assert sent < 50 * 2**20


def test_a_compressed_answer_is_refused(server, connect):
    server.answer_with(status(200, gzip.compress(b"{}"), Content_Encoding="gzip"))
    with pytest.raises(GraphUnavailableError, match="compresses"):
        ask(connect(server.url))


def test_busy_connections_are_overload_at_the_deadline(server, connect):
    client = connect(server.url, connections=1)
    started, go_on = threading.Event(), threading.Event()

    def slow(request):
        started.set()
        go_on.wait(60)
        server.execute(request)

    server.answer_with(slow)
    first = threading.Thread(target=lambda: ask(client, deadline_s=60))
    first.start()
    assert started.wait(60)
    with pytest.raises(QueryOverloadError, match="busy"):
        ask(client, deadline_s=0.2)
    go_on.set()
    first.join()


def test_virtuoso_s_partial_result_is_a_timeout(server, connect):
    rows = b'{"head":{"vars":["n"]},"results":{"bindings":[]}}'
    server.answer_with(
        status(200, rows, X_SQL_State="S1TAT", X_SQL_Message="RC...: Returning incomplete results")
    )
    with pytest.raises(QueryTimeoutError, match="time limit"):
        ask(connect(server.url))


@pytest.mark.parametrize(
    ("code", "body", "error", "says"),
    [
        (
            400,
            b"Virtuoso 37000 Error SP030: SPARQL compiler, line 2: error at '}'\n\nSPARQL query:\ntimeout",
            QuerySyntaxError,
            "^SP030: SPARQL compiler, line 2: error at '}'$",
        ),
        (
            500,
            b"Virtuoso S1T00 Error SR171: Transaction timed out\n\nSPARQL query:\nASK {}",
            QueryTimeoutError,
            "time limit",
        ),
        (
            500,
            b"Virtuoso 42000 Error The estimated execution time 9000 (sec) exceeds the limit of 60 (sec).",
            QueryTimeoutError,
            "time limit",
        ),
        (
            500,
            b"Virtuoso 22023 Error SR353: Sorted TOP clause specifies more then 10100 rows to sort.",
            QueryError,
            "SR353",
        ),
        (
            400,
            b'{"exception": "Invalid SPARQL query: mismatched input", "query": "x timeout"}',
            QuerySyntaxError,
            "^Invalid SPARQL query: mismatched input$",
        ),
        (429, b'{"exception": "Operation timed out. Cancelled"}', QueryTimeoutError, "timed out"),
        (
            500,
            b'{"exception": "Tried to allocate 4 GB, but only 2 GB were available"}',
            QueryMemoryError,
            "allocate",
        ),
        (400, b"Error 400: Parse error: Encountered <EOF>", QuerySyntaxError, "Parse error"),
        (503, b"Error 503: Query timed out", QueryTimeoutError, "timed out"),
        (400, b"MALFORMED QUERY: Encountered foo", QuerySyntaxError, "MALFORMED"),
        (500, b"Query evaluation exception: took too long", QueryTimeoutError, "too long"),
        (500, b"<html><h1>Oops</h1></html>", QueryError, r"\(500\): Oops"),
        (401, b"", GraphUnavailableError, "credentials"),
        (404, b"", GraphUnavailableError, "right URL"),
    ],
)
def test_what_servers_say_becomes_an_error_of_ours(server, connect, code, body, error, says):
    server.answer_with(status(code, body))
    with pytest.raises(error, match=says) as raised:
        ask(connect(server.url))
    assert type(raised.value) is error
    assert len(server.requests) == 1


def test_a_redirect_is_not_followed(server, connect):
    other = SparqlServer()
    try:
        server.answer_with(status(307, Location=other.url))
        with pytest.raises(GraphUnavailableError, match=other.url):
            ask(connect(server.url))
        assert other.requests == []
    finally:
        other.stop()


@pytest.mark.parametrize(
    ("auth", "expected"), [(AuthKind.BASIC, "Basic bWU6czNjcmV0"), (AuthKind.BEARER, "Bearer s3cret")]
)
def test_secrets_come_from_the_environment_and_stand_in_no_log(
    server, connect, monkeypatch, caplog, auth, expected
):
    caplog.set_level(logging.DEBUG)
    client = connect(server.url, auth=auth, user="me", secret_variable="WIKI_PASSWORD")
    with pytest.raises(GraphUnavailableError, match="WIKI_PASSWORD"):
        ask(client)
    monkeypatch.setenv("WIKI_PASSWORD", "s3cret")
    ask(client)
    assert server.requests[-1]["authorization"] == expected
    server.answer_with(status(401))
    with pytest.raises(GraphUnavailableError) as raised:
        ask(client)
    assert "s3cret" not in str(raised.value) + caplog.text + str(vars(client))
    assert expected.split()[1] not in caplog.text


def test_a_closed_client_says_so(server, connect):
    client = connect(server.url)
    asked = threading.Event()

    def asked_in_vain(request):
        asked.set()
        silent(request)

    server.answer_with(asked_in_vain)
    errors = []

    def waiting():
        try:
            ask(client, deadline_s=60)
        except GraphUnavailableError as error:
            errors.append(str(error))

    thread = threading.Thread(target=waiting)
    thread.start()
    assert asked.wait(60)
    client.close()
    thread.join(60)
    assert "was closed while it was asked" in errors[0]
    with pytest.raises(GraphUnavailableError, match="was closed"):
        ask(client)


def test_a_client_that_nobody_holds_ends_its_thread(server):
    before = set(threading.enumerate())
    client = EndpointClient(Endpoint(server.url))
    [thread] = set(threading.enumerate()) - before
    ask(client)
    del client
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"url": "ftp://x/"}, "http://"),
        ({"url": "file:///etc/passwd"}, "http://"),
        ({"url": "/sparql"}, "http://"),
        ({"url": "http://me:secret@x/"}, "environment variable"),
        ({"default_graphs": ("a b",)}, "absolute IRI"),
        ({"labels": ("label",)}, "absolute IRI"),
        ({"labels": ()}, "names"),
        ({"languages": ('en"',)}, "language tag"),
        ({"deadline_s": 0}, "above 0"),
        ({"connections": 0}, "above 0"),
        ({"auth": AuthKind.BEARER}, "environment variable"),
        ({"auth": AuthKind.BASIC, "secret_variable": "X"}, "user"),
    ],
)
def test_an_endpoint_that_cannot_be_is_refused(fields, says):
    with pytest.raises(ConfigurationError, match=says):
        Endpoint(**{"url": "http://localhost/sparql", **fields})


def test_an_endpoint_survives_json():
    endpoint = Endpoint(
        "https://ex.org/sparql",
        ("http://ex.org/g",),
        ServerKind.QLEVER,
        languages=("de", "en"),
        auth=AuthKind.DIGEST,
        user="me",
        secret_variable="X",
    )
    assert Endpoint.from_json(endpoint.to_json()) == endpoint
