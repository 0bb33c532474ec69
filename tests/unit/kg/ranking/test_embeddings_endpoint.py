"""An encoder over HTTP: a server of its own in this process, and all that one may answer."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from kbqa.errors import EncoderUnavailableError
from kbqa.kg.actions import Action, Failure
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.ranking.embeddings_endpoint import EndpointEncoder
from kbqa.kg.ranking.encoders import NgramEncoder
from kbqa.kg.ranking.opening import open_encoder
from kbqa.kg.ranking.ranker import Schemas
from kbqa.kg.tools import LocalGraphTools


class Server:
    """Embeds by character n-grams, unless `answer` says what to answer."""

    def __init__(self):
        self.requests, self.keys, self.answer = [], [], None
        self._encoder = NgramEncoder()

    def respond(self, path, body, key):
        self.keys.append(key)
        if self.answer is not None:
            return self.answer
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "trigrams"}, {"id": "other"}]}
        self.requests.append(body)
        # Three times as long as a unit vector, and out of order, which is allowed.
        rows = [
            {"index": i, "embedding": (3 * v).tolist()}
            for i, v in enumerate(self._encoder.encode(body["input"]))
        ]
        return 200, {"object": "list", "data": rows[::-1], "model": body["model"]}


@pytest.fixture
def server():
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = state.respond(self.path, body, self.headers.get("Authorization"))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}/v1"
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def encoder(server):
    encoder = EndpointEncoder(server.url, api_key="secret", timeout_s=5)
    yield encoder
    encoder.close()


def test_vectors_are_the_servers_in_order_and_of_length_one(server, encoder):
    texts = [f"relation {n}" for n in range(300)]
    assert np.allclose(encoder.encode(texts), NgramEncoder().encode(texts), atol=1e-6)
    assert [len(request["input"]) for request in server.requests] == [256, 44]
    assert encoder.encode([]).shape[0] == 0


def test_the_model_is_the_one_named_or_the_servers_first(server, encoder):
    assert encoder.name == f"{server.url}#trigrams"
    encoder.encode(["a"])
    assert server.requests[-1]["model"] == "trigrams"
    named = open_encoder(f"{server.url}/#other", timeout_s=5)
    named.encode(["a"])
    assert (named.name, server.requests[-1]["model"]) == (f"{server.url}#other", "other")
    named.close()


def test_the_key_is_sent(server, encoder):
    assert set(server.keys) == {"Bearer secret"}


def test_an_instruction_goes_before_the_query_alone(server, encoder):
    encoder.encode_query("who?", "Select the relations.")
    encoder.encode_query("who?")
    assert [r["input"] for r in server.requests] == [
        ["Instruct: Select the relations.\nQuery: who?"],
        ["who?"],
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((500, {"error": "out of memory"}), "500"),
        ((401, {"error": "no key"}), "401"),
        ((200, b"<html>"), "gives no vectors"),
        ((200, {"data": []}), "0 embeddings for 2 texts"),
        ((200, {"data": [{"index": 0, "embedding": [1.0]}]}), "for 2 texts"),
        ((200, {"data": [{"index": 0}, {"index": 1}]}), "embedding"),
        ((200, {"data": [{"index": n, "embedding": [float("nan")]} for n in (0, 1)]}), "not of numbers"),
        ((200, []), "not an answer"),
    ],
)
def test_whatever_else_it_answers_is_an_error_that_names_it(server, encoder, answer, said):
    server.answer = answer
    with pytest.raises(EncoderUnavailableError, match="KBQA_KG_SERVER_ENCODER") as caught:
        encoder.encode(["a", "b"])
    assert said in str(caught.value)
    assert server.url in str(caught.value)


def test_a_server_that_is_not_there_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    with pytest.raises(EncoderUnavailableError, match="gives no vectors"):
        open_encoder(url, timeout_s=1)


def test_an_action_without_its_encoder_fails_by_itself(server, encoder):
    store = OxigraphStore.from_triples([("Heat", "directed by", "Michael Mann")])
    tools = LocalGraphTools(FixedGraphs({"g": store}), schemas=Schemas(encoder))
    gated = Action("get_tail_entities", {"entity": "Heat", "relation": "director", "gate": True})
    plain = Action("get_tail_relations", {"entity": "Heat"})
    server.answer = (503, {"error": "loading"})
    failed, fine = tools.execute("g", [gated, plain])
    assert isinstance(failed, Failure)
    assert (failed.kind, failed.code) == ("backend_unavailable", "KG_SERVER_ERROR")
    assert fine.total == 1
    server.answer = None
    [again] = tools.execute("g", [gated])
    assert again.items[0].id == "Michael Mann"
