"""The gateway as clients of OpenAI's API see it: the official client, and what chat pages send."""

from __future__ import annotations

import json

import httpx
import openai
import pytest

from kbqa.client.models import AnswerResponse
from services.access.keys import KeyFile
from services.gateway.app import create_app
from services.gateway.chat import text_of
from services.gateway.settings import GatewaySettings
from services.http import background
from tests.services.gateway.conftest import FixedPolicy, NoPolicy, answer, query, recite

STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks, Elizabeth Perkins"))
SAID = [{"role": "user", "content": "Who starred in Big?"}]
TEXT = """\
Tom Hanks, Elizabeth Perkins

Evidence:
```
Big  starred  Tom Hanks
Big  starred  Elizabeth Perkins
```"""


@pytest.fixture
def serve(kg_server_url, tmp_path):
    """Serves a gateway over HTTP for the rest of the test; returns the official client of it."""
    open_ = []

    def make(policies=None, key="none", **settings):
        settings = {"home": tmp_path, "kg_server_url": kg_server_url, **settings}
        server = background(create_app(GatewaySettings.load(**settings), policies or FixedPolicy(STARS)))
        client = openai.OpenAI(base_url=f"{server.__enter__()}/v1", api_key=key, max_retries=0)
        open_.append((server, client))
        return client

    yield make
    for server, client in open_:
        client.close()
        server.__exit__(None, None, None)


def test_the_official_client_gets_an_answer_with_its_document(serve):
    client = serve()
    done = client.chat.completions.create(model="kbqa/films", messages=SAID, temperature=0.2, max_tokens=9)
    (choice,) = done.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TEXT, "stop")
    assert done.model == "kbqa/films"
    document = AnswerResponse.model_validate(done.model_extra["kbqa"])
    assert [a.value for a in document.answers] == ["Tom Hanks", "Elizabeth Perkins"]
    assert done.id == f"chatcmpl-{document.id}"
    usage = document.usage
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (
        usage.prompt_tokens,
        usage.generated_tokens,
    )


def test_the_official_client_watches_it_being_found(serve):
    stream = serve().chat.completions.create(
        model="kbqa/films", messages=SAID, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thought = "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas)
    assert thought == "so\nget_tail_entities(Big, starred)\nso\n"
    assert "".join(delta.content or "" for delta in deltas) == TEXT
    assert deltas[0].role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-2:] == [None, "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens > 0
    assert chunks[-2].model_extra["kbqa"]["status"] == "answered"
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_official_client_lists_graphs_as_models(serve):
    client = serve()
    assert [model.id for model in client.models.list()] == ["kbqa/films", "kbqa/rdf"]
    assert client.models.retrieve("kbqa/films").owned_by == "kbqa"
    with pytest.raises(openai.NotFoundError, match="loaded graphs: films, rdf"):
        client.models.retrieve("kbqa/none")


def test_errors_are_those_that_the_official_client_knows(serve, tmp_path):
    def fails(client, error, says, **request):
        with pytest.raises(error, match=says):
            client.chat.completions.create(**{"model": "kbqa/films", "messages": SAID, **request})

    client = serve()
    fails(client, openai.NotFoundError, "loaded graphs: films, rdf", model="kbqa/none")
    fails(client, openai.UnprocessableEntityError, "use kbqa/GRAPH", model="gpt-4")
    fails(client, openai.UnprocessableEntityError, "there are: films, rdf", model="kbqa")
    fails(client, openai.UnprocessableEntityError, "the last user message is not a question", messages=[
        {"role": "system", "content": "be nice"}
    ])  # fmt: skip
    fails(client, openai.UnprocessableEntityError, "n_runs", extra_body={"kbqa": {"n_runs": 0}})
    fails(serve(NoPolicy()), openai.InternalServerError, "no policy is promoted yet")
    _, key = KeyFile(tmp_path / "keys.json").create("a", quota="1/day")
    guarded = serve(key=key, keys_file=tmp_path / "keys.json")
    guarded.chat.completions.create(model="kbqa/films", messages=SAID)
    fails(guarded, openai.RateLimitError, "more questions than 1/day")
    fails(guarded.with_options(api_key="x"), openai.AuthenticationError, "Authorization: Bearer KEY")
    problem = httpx.get(f"{guarded.base_url}models").json()
    assert (problem["status"], problem["error"]["code"]) == (401, 401)
    assert problem["error"]["message"] == problem["detail"]


def test_what_a_chat_page_sends_is_understood(serve):
    """The shape of Open WebUI and its like: history, parts, and fields of other engines."""
    url = str(serve(default_graph="films").base_url)
    body = {
        "model": "kbqa",
        "stream": True,
        "stream_options": {"include_usage": True, "other": 1},
        "messages": [
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi", "reasoning_content": "…"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Who starred in Big?"},
                    {"type": "image_url", "image_url": {"url": "data:,"}},
                ],
            },
        ],
        "temperature": 0.7,
        "top_p": None,
        "stop": ["\n"],
        "tools": [],
        "chat_id": "x",
        "features": {"web_search": False},
    }
    response = httpx.post(f"{url}chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, end = response.text.removesuffix("\n\n").split("\n\n")
    assert end == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    content = [c["choices"][0]["delta"].get("content") for c in chunks if c["choices"]]
    assert TEXT in content


def test_what_fails_in_mid_stream_is_told_as_clients_expect_it(serve):
    def forgetful(prompt):
        if "<information>" in prompt:
            raise RuntimeError("the engine is gone")
        return query("get_tail_entities", "Big", "starred")

    stream = serve(FixedPolicy(forgetful)).chat.completions.create(
        model="kbqa/films", messages=SAID, stream=True
    )
    with pytest.raises(openai.APIError, match="internal error"):
        list(stream)


def test_names_from_a_graph_become_no_markup():
    document = {
        "id": "1",
        "question": "?",
        "kg": "g",
        "status": "answered",
        "answers": [
            {
                "value": "x",
                "label": "![x](http://evil)<b>`\nTom_Hanks",
                "kind": "entity",
                "support": "1/1",
                "evidence": {"triples": [["a", "```", "b\n\n# c"]]},
            }
        ],
        "runs": [],
        "policy": "p",
        "policy_version": "v",
        "recipe": "r",
        "usage": dict.fromkeys(
            ("llm_calls", "prompt_tokens", "generated_tokens", "kg_calls", "elapsed_ms"), 0
        ),
    }
    text = text_of(AnswerResponse.model_validate(document))
    assert text == "!\\[x\\](http://evil)\\<b\\>\\` Tom_Hanks\n\nEvidence:\n````\na  ```  b # c\n````"
