"""The client of the gateway against answers that are made up; `tests/services` has it against a real one."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from kbqa.client import (
    AccessDeniedError,
    AsyncGateway,
    Gateway,
    GatewayBusyError,
    GatewayFailedError,
    GatewayUnreachableError,
    NotThereError,
    RequestRefusedError,
)
from kbqa.client.batches import BatchLine
from kbqa.client.events import DoneEvent, ThoughtEvent
from kbqa.telemetry.logs import log_context

USAGE = {"llm_calls": 1, "prompt_tokens": 2, "generated_tokens": 3, "kg_calls": 4, "elapsed_ms": 5.0}
DOCUMENT = {
    "id": "a1",
    "question": "Who?",
    "kg": "films",
    "status": "answered",
    "answers": [],
    "runs": [],
    "policy": "p",
    "policy_version": "v1",
    "recipe": "kg-r1",
    "usage": USAGE,
}
STREAM = (
    ": keep-alive\n\n"
    'event: thought\ndata: {"event": "thought", "run": 0, "turn": 1, "thought": "so"}\n\n'
    f'event: done\ndata: {{"event": "done", "run": null, "document": {json.dumps(DOCUMENT)}}}\n\n'
)
PROBLEM = {"type": "urn:kbqa:problem:some-thing", "title": "t", "status": 0, "detail": "do this"}


class Sync:
    """The client without `await`."""

    def __init__(self, answer):
        self._gateway = Gateway("http://gateway", api_key="k", transport=httpx.MockTransport(answer))

    def call(self, method, *args, **options):
        with self._gateway as gateway:
            return getattr(gateway, method)(*args, **options)

    def events(self, *args, **options):
        with self._gateway as gateway:
            return list(gateway.stream(*args, **options))

    def answers(self, *args, **options):
        with self._gateway as gateway:
            return list(gateway.batch_answers(*args, **options))


class Async:
    """The other one."""

    def __init__(self, answer):
        self._gateway = AsyncGateway("http://gateway", api_key="k", transport=httpx.MockTransport(answer))

    def call(self, method, *args, **options):
        async def play():
            async with self._gateway as gateway:
                return await getattr(gateway, method)(*args, **options)

        return asyncio.run(play())

    def events(self, *args, **options):
        async def play():
            async with self._gateway as gateway:
                return [event async for event in gateway.stream(*args, **options)]

        return asyncio.run(play())

    def answers(self, *args, **options):
        async def play():
            async with self._gateway as gateway:
                return [answer async for answer in gateway.batch_answers(*args, **options)]

        return asyncio.run(play())


@pytest.fixture(params=[Sync, Async])
def client(request):
    """Makes either client of a gateway that gives one answer; requests land in `client.seen`."""

    def make(response):
        def answer(sent):
            make.seen.append(sent)
            if isinstance(response, Exception):
                raise response
            return response

        return request.param(answer)

    make.seen = []
    return make


def test_a_question_is_sent_as_it_was_asked(client):
    with log_context(request_id="r1"):
        document = client(httpx.Response(200, json=DOCUMENT)).call(
            "answer", "Who?", "films", n_runs=3, topic_entities=["Big"], idempotency_key="i", fresh=True
        )
    (sent,) = client.seen
    assert (sent.method, sent.url.path) == ("POST", "/v1/answer")
    assert json.loads(sent.content) == {
        "question": "Who?",
        "kg": "films",
        "n_runs": 3,
        "topic_entities": ["Big"],
    }
    headers = sent.headers
    assert (headers["authorization"], headers["idempotency-key"]) == ("Bearer k", "i")
    assert (headers["cache-control"], headers["x-request-id"]) == ("no-cache", "r1")
    assert (document.id, document.usage.kg_calls) == ("a1", 4)


def test_a_stream_is_its_events(client):
    response = httpx.Response(200, text=STREAM, headers={"Content-Type": "text/event-stream"})
    thought, done = client(response).events("Who?", "films")
    assert json.loads(client.seen[0].content)["stream"] is True
    assert isinstance(thought, ThoughtEvent)
    assert isinstance(done, DoneEvent)
    assert done.document.id == "a1"


def test_the_other_calls(client):
    assert client(httpx.Response(200, json=DOCUMENT)).call("read", "a/1").id == "a1"
    assert client.seen[-1].url.raw_path == b"/v1/answers/a%2F1"
    said = client(httpx.Response(201, json={"id": "f1"})).call("feedback", "a1", "wrong", answers=["x"])
    assert said == "f1"
    assert json.loads(client.seen[-1].content) == {"answer_id": "a1", "verdict": "wrong", "answers": ["x"]}
    graph = {"name": "films", "version": "v", "triples": 5, "entities": None}
    assert client(httpx.Response(200, json={"graphs": [graph]})).call("graphs")[0].name == "films"
    policies = {"serving": None, "policies": []}
    assert client(httpx.Response(200, json=policies)).call("policies").serving is None
    assert client(httpx.Response(200, json=policies)).call("policies", "a/b").policies == []
    assert [sent.url.raw_path for sent in client.seen[-2:]] == [b"/v1/policies", b"/v1/policies?kg=a%2Fb"]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, AccessDeniedError),
        (403, AccessDeniedError),
        (404, NotThereError),
        (409, RequestRefusedError),
        (422, RequestRefusedError),
        (429, GatewayBusyError),
        (503, GatewayBusyError),
        (500, GatewayFailedError),
        (507, GatewayFailedError),
    ],
)
def test_a_problem_is_an_error_with_its_words(client, status, error):
    headers = {"X-Request-ID": "r1", "Retry-After": "7"}
    response = httpx.Response(status, json=PROBLEM, headers=headers)
    with pytest.raises(error, match=r"^do this$") as caught:
        client(response).call("graphs")
    assert (caught.value.status, caught.value.kind, caught.value.request_id) == (status, "some-thing", "r1")
    if error is GatewayBusyError:
        assert caught.value.retry_after_s == 7


def test_a_stream_fails_before_it_begins_or_in_its_midst(client):
    with pytest.raises(NotThereError, match="do this"):
        client(httpx.Response(404, json=PROBLEM)).events("Who?", "films")
    problem = PROBLEM | {"status": 503}
    text = f'event: error\ndata: {{"event": "error", "run": null, "problem": {json.dumps(problem)}}}\n\n'
    response = httpx.Response(200, text=text, headers={"Content-Type": "text/event-stream"})
    with pytest.raises(GatewayBusyError, match="do this"):
        client(response).events("Who?", "films")


@pytest.mark.parametrize(
    ("status", "content"),
    [(200, "<html>"), (200, '{"graphs": 1}'), (404, "nginx"), (502, '{"detail": "no type"}')],
)
def test_what_is_no_gateway_is_said_to_be_none(client, status, content):
    with pytest.raises(GatewayFailedError, match=r"but not like a gateway of this release"):
        client(httpx.Response(status, text=content)).call("graphs")


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (httpx.ConnectError("refused"), "no gateway answers at http://gateway (refused): start everything"),
        (httpx.ConnectTimeout("slow"), "no gateway answers at http://gateway"),
        (httpx.ReadTimeout("slow"), "did not answer in time"),
    ],
)
def test_a_gateway_that_is_not_there_is_named_with_the_remedy(client, failure, says):
    with pytest.raises(GatewayUnreachableError) as caught:
        client(failure).call("graphs")
    assert says in str(caught.value)


BATCH = {
    "id": "b1",
    "state": "running",
    "created_at": "2026-10-12T09:30:15Z",
    "lines": 2,
    "answered": 1,
    "errors": 0,
}


def test_a_batch_is_sent_as_json_lines(client):
    lines = [
        BatchLine(id="q", question="Who?", kg="films", n_runs=2),
        BatchLine(question="What?", kg="films"),
    ]
    batch = client(httpx.Response(202, json=BATCH)).call("send_batch", lines, idempotency_key="k")
    (sent,) = client.seen
    assert [json.loads(line) for line in sent.content.splitlines()] == [
        {"id": "q", "question": "Who?", "kg": "films", "n_runs": 2},
        {"question": "What?", "kg": "films"},
    ]
    assert (sent.url.path, sent.headers["idempotency-key"]) == ("/v1/batches", "k")
    assert (batch.id, batch.state) == ("b1", "running")


def test_answers_of_a_batch_are_lines_that_end_at_line_feeds_alone(client):
    strange = "a\u2028b\x85c"
    sent = [{"line": 2, "id": strange, "answer": DOCUMENT}, {"line": 1, "id": "x", "error": PROBLEM}]
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in sent).encode()
    chunks = [text[place : place + 7] for place in range(0, len(text), 7)]

    class Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self):
            yield from chunks

        async def __aiter__(self):
            for chunk in chunks:
                yield chunk

    first, second = client(httpx.Response(200, stream=Chunks())).answers("b/1", after=3)
    assert str(client.seen[0].url) == "http://gateway/v1/batches/b%2F1/answers?after=3"
    assert (first.line, first.id, first.answer.id) == (2, strange, "a1")
    assert (second.answer, second.error.detail) == (None, "do this")


def test_a_batch_is_followed_cancelled_and_deleted(client):
    assert client(httpx.Response(200, json=BATCH)).call("batch", "b1").lines == 2
    assert client(httpx.Response(200, json={"batches": [BATCH]})).call("batches")[0].id == "b1"
    assert client(httpx.Response(200, json=BATCH)).call("cancel_batch", "b1").id == "b1"
    client(httpx.Response(204)).call("delete_batch", "b1")
    sent = [(one.method, one.url.path) for one in client.seen]
    assert sent == [
        ("GET", "/v1/batches/b1"),
        ("GET", "/v1/batches"),
        ("POST", "/v1/batches/b1/cancel"),
        ("DELETE", "/v1/batches/b1"),
    ]
    with pytest.raises(NotThereError, match="do this"):
        client(httpx.Response(404, json=PROBLEM)).call("delete_batch", "b1")
    with pytest.raises(NotThereError, match="do this"):
        client(httpx.Response(404, json=PROBLEM)).answers("b1")
