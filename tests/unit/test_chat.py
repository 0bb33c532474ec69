"""The client of chat endpoints, against a real server that fails in every way it can."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
import time

import pytest
from fastapi import Response
from fastapi.responses import StreamingResponse

from kbqa.chat import ChatClient, ChatModel, ChatParams, Conversation, Message
from kbqa.errors import ChatRefusedError, ChatUnavailableError, ConfigurationError
from tests.chat_server import calls, serve

HELLO = Conversation((Message("system", "s"), Message("user", "hello")))


@pytest.fixture(scope="module")
def server():
    with serve() as chat:
        yield chat


@pytest.fixture
def ask(server):
    server.asked.clear()
    server.abandoned.clear()
    clients = []

    def reply(*conversations, params=None, deadline=None, cancelled=None, **model):
        model = {"name": "m", "url": server.url, "timeout_s": 5, "back_off_s": 0.01, **model}
        client = ChatClient(ChatModel(**model))
        clients.append(client)
        conversations = conversations or (HELLO,)
        params = params or ChatParams(max_tokens=50)
        return client.reply(conversations, params, deadline=deadline, cancelled=cancelled)

    yield reply
    for client in clients:
        client.close()


def failing(status, body="no", **headers):
    return Response(body, status, headers={key.replace("_", "-"): value for key, value in headers.items()})


def test_a_request_carries_messages_bounds_and_key(server, ask):
    server.says("hi")
    params = ChatParams(max_tokens=7, temperature=0.5, stop=("</x>",), seed=3)
    [reply, _] = ask(HELLO, HELLO, params=params, api_key="secret", extra={"top_p": 0.9, "stop": None})
    assert (reply.text, reply.prompt_tokens, reply.generated_tokens, reply.model) == (
        "hi",
        20,
        5,
        "scripted-1",
    )
    body = min(server.asked, key=lambda body: body["seed"])
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}],
        "max_tokens": 7,
        "temperature": 0.5,
        "seed": 3,
        "top_p": 0.9,  # and no stop strings, since `extra` leaves them out
    }
    assert sorted(body["seed"] for body in server.asked) == [3, 4]  # not the same sample twice
    assert server.headers[-1]["authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again(server, ask, status):
    server.says(failing(status, Retry_After="0.01"), failing(status), "hi")
    assert ask()[0].text == "hi"
    assert len(server.asked) == 3


def test_retry_after_is_heeded(server, ask):
    server.says(failing(429, Retry_After="0.4"), "hi")
    began = time.monotonic()
    ask()
    assert time.monotonic() - began >= 0.4


def test_attempts_are_bounded(server, ask):
    server.says(failing(503, "overloaded"))
    with pytest.raises(ChatUnavailableError, match="no reply in 2 attempts: 503: overloaded"):
        ask(attempts=2)
    assert len(server.asked) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_what_will_not_pass_is_told_at_once(server, ask, status):
    server.says(failing(status, "wrong key"))
    with pytest.raises(ChatRefusedError, match=f"{status}: wrong key.*correct its URL, name, key"):
        ask()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body", ["<html>", "{}", "[]", '{"choices": []}', '{"choices": [{"message": "hi"}]}', "[" * 100_000]
)
def test_what_is_no_chat_completion_is_refused(server, ask, body):
    server.says(failing(200, body))
    with pytest.raises(ChatRefusedError, match="no chat completion"):
        ask()


def test_an_answer_without_end_is_refused_and_abandoned(server, ask):
    sent = itertools.count()
    server.says(StreamingResponse(b"x" * 2**20 for _ in sent))
    with pytest.raises(ChatRefusedError, match="longer than 16777216 bytes.*correct its URL"):
        ask()
    assert next(sent) < 100


def test_an_answer_that_is_packed_is_refused_before_it_is_unpacked(server, ask):
    bomb = gzip.compress(b" " * 2**26)
    server.says(Response(bomb, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(ChatRefusedError, match="compresses its answers"):
        ask()
    assert server.headers[-1]["accept-encoding"] == "identity"


def test_a_conversation_that_does_not_fit_gets_a_reply_without_room(server, ask):
    server.says(failing(400, '{"message": "This model\'s maximum context length is 4096 tokens"}'))
    assert (ask()[0].text, ask()[0].cut) == ("", True)


def test_contents_of_every_shape_become_text(server, ask):
    parts = [{"type": "text", "text": "a"}, {"type": "image", "url": "x"}, {"type": "text", "text": "b"}]
    server.says(
        {"content": None},
        {"content": parts},
        failing(
            200,
            json.dumps(
                {
                    "choices": [
                        {
                            "message": {"content": "half \ud800", "reasoning_content": "r"},
                            "finish_reason": "length",
                        }
                    ]
                }
            ),
        ),
    )
    assert [ask()[0].text for _ in range(2)] == ["", "ab"]
    [reply] = ask()
    assert (reply.text, reply.reasoning, reply.cut, reply.prompt_tokens) == ("half ?", "r", True, 0)


def test_calls_of_functions_are_read_as_they_are_written(server, ask):
    server.says(
        calls("f", "{not json"),
        {"content": "", "tool_calls": [{"function": {"name": "g", "arguments": {"a": 1}}}]},
    )
    tools = ({"name": "f", "parameters": {}},)
    [reply] = ask(Conversation(HELLO.messages, tools))
    assert (reply.tool_calls[0].name, reply.tool_calls[0].arguments) == ("f", "{not json")
    assert server.asked[0]["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert ask()[0].tool_calls[0].arguments == '{"a": 1}'


def test_at_its_deadline_nothing_is_waited_for(server, ask):
    server.stalls()
    began = time.monotonic()
    assert ask(HELLO, HELLO, deadline=began + 0.2, timeout_s=60) == [None, None]
    assert time.monotonic() - began < 30


def test_a_deadline_ends_the_pauses_between_attempts_too(server, ask):
    server.says(failing(503))
    assert ask(back_off_s=60, deadline=time.monotonic() + 0.2) == [None]


def test_what_came_before_the_deadline_counts(server, ask):
    server.script = lambda body: "hi" if body["messages"][-1]["content"] == "hello" else {"stall": True}
    other = Conversation((Message("user", "other"),))
    first, second = ask(HELLO, other, deadline=time.monotonic() + 3)
    assert (first.text, second) == ("hi", None)


def test_a_cancelled_request_is_abandoned(server, ask):
    cancelled = threading.Event()

    def stall(body):
        cancelled.set()
        return {"stall": True}

    server.script = stall
    assert ask(cancelled=cancelled) == [None]
    assert server.abandoned.wait(30)  # its connection was closed


def test_a_silent_server_is_unavailable(server, ask):
    server.stalls()
    with pytest.raises(ChatUnavailableError, match="ReadTimeout"):
        ask(timeout_s=0.2, attempts=2)


def test_a_server_that_is_not_there_is_unavailable(ask):
    with pytest.raises(ChatUnavailableError, match="check that it is running"):
        ask(url="http://127.0.0.1:9/v1", attempts=2)


def test_closing_abandons_what_is_under_way(server):
    server.stalls()
    client = ChatClient(ChatModel("m", server.url))
    threading.Timer(0.2, client.close).start()
    assert client.reply([HELLO], ChatParams()) == [None]
    with pytest.raises(ChatUnavailableError, match="closed"):
        client.reply([HELLO], ChatParams())
    client.close()


@pytest.mark.parametrize("url", ["", "api.openai.com/v1", "ftp://x/v1", "http://"])
def test_a_url_that_is_none_is_an_error_of_configuration(url):
    with pytest.raises(ConfigurationError, match="https://host/v1"):
        ChatClient(ChatModel("m", url))
