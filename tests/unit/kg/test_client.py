"""What the HTTP client makes of servers that fail; see the contract test for those that do not."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from kbqa.errors import GraphUnavailableError
from kbqa.kg.actions import Action, Success
from kbqa.kg.client import HttpGraphTools

ANSWER = (
    b'{"kg":"g","version":"v","results":[{"status":"ok","items":[{"id":"a","label":"a"}],'
    b'"total":1,"truncated":false,"cached":false,"elapsed_ms":0.1}]}'
)


def http(status: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def scripted_server():
    """A server that answers with the given bytes, one connection per list; an empty answer hangs up."""
    threads = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connections):
            for answers in connections:
                connection, _ = listener.accept()
                with connection:
                    for answer in answers:
                        connection.recv(1 << 16)
                        if not answer:
                            break
                        connection.sendall(answer)

        def start(*connections):
            thread = threading.Thread(target=serve, args=(connections,), daemon=True)
            thread.start()
            threads.append(thread)
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield start
    for thread in threads:
        thread.join(5)


def test_a_server_that_is_not_there_is_named_with_a_remedy():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with HttpGraphTools(url) as tools, pytest.raises(GraphUnavailableError) as caught:
        tools.execute("g", [])
    assert url in str(caught.value)
    assert "kbqa up" in str(caught.value)


def test_a_connection_that_was_dropped_between_two_batches_is_opened_again(scripted_server):
    url = scripted_server([http("200 OK", ANSWER), b""], [http("200 OK", ANSWER)])
    with HttpGraphTools(url) as tools:
        for _ in range(2):
            [result] = tools.execute("g", [Action("get_tail_relations", {"entity": "a"})])
            assert isinstance(result, Success)


def test_a_server_that_never_answers_is_given_up(scripted_server):
    url = scripted_server([b"HTTP/1.1 200 OK\r\n", b""])
    with (
        HttpGraphTools(url, timeout_s=0.2) as tools,
        pytest.raises(GraphUnavailableError, match="does not answer"),
    ):
        tools.execute("g", [])


@pytest.mark.parametrize(
    ("status", "content_type"),
    [("404 Not Found", "text/html"), ("200 OK", "text/html"), ("500 Oops", "text/plain")],
)
def test_something_else_at_the_address_is_no_missing_graph(scripted_server, status, content_type):
    url = scripted_server([http(status, b"<html>", content_type)])
    with (
        HttpGraphTools(url) as tools,
        pytest.raises(GraphUnavailableError, match="not an answer of kg_server"),
    ):
        tools.execute("g", [])


def test_the_servers_own_reason_is_passed_on(scripted_server):
    body = b'{"type":"about:blank","status":503,"detail":"graphs are being opened"}'
    url = scripted_server([http("503 Service Unavailable", body, "application/problem+json")])
    with HttpGraphTools(url) as tools, pytest.raises(GraphUnavailableError, match="graphs are being opened"):
        tools.execute("g", [])


OVERLOAD = http(
    "429 Too Many Requests\r\nRetry-After: 1", b'{"detail":"too many"}', "application/problem+json"
)


def test_a_server_that_has_too_much_to_do_is_asked_again_when_it_says(scripted_server):
    url = scripted_server([OVERLOAD, OVERLOAD, http("200 OK", b'{"graphs":[]}')])
    started = time.monotonic()
    with HttpGraphTools(url) as tools:
        assert tools.graphs() == []
    assert 2 <= time.monotonic() - started < 10


def test_a_server_that_stays_overloaded_is_not_asked_for_ever(scripted_server):
    url = scripted_server([OVERLOAD] * 3)
    with (
        HttpGraphTools(url, timeout_s=1.5) as tools,
        pytest.raises(GraphUnavailableError, match="429: too many"),
    ):
        tools.graphs()


def test_a_server_that_wants_a_key_is_said_how_to_be_given_one(scripted_server):
    url = scripted_server([http("401 Unauthorized", b'{"detail":"send a key"}', "application/problem+json")])
    with HttpGraphTools(url) as tools, pytest.raises(GraphUnavailableError, match="KBQA_KG_SERVER_API_KEY"):
        tools.graphs()
