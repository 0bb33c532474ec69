"""Questions that follow others: in a session of `POST /v1/answer`, and in the history of a chat."""

from __future__ import annotations

import asyncio
import re

import pytest

from kbqa.conversation import Exchange
from services.gateway.errors import SessionNotFoundError
from services.gateway.sessions import Session, Sessions
from services.gateway.shelves import MemoryShelf, RedisShelf
from tests.chat_server import serve as serve_chat
from tests.services.gateway.conftest import FixedPolicy, answer, query

ANSWERS = {"Who directed Big?": "Penny Marshall", "Who starred in Philadelphia?": "Tom Hanks"}


def by_question(prompt):
    """Looks the question up, so that an answer has evidence; other questions have none."""
    said = re.findall(r"[^\n]*\?", prompt)[-1]
    for question, found in ANSWERS.items():
        if question in prompt:
            topic = "Big" if found == "Penny Marshall" else "Philadelphia"
            relation = "directed by" if topic == "Big" else "starred"
            asked = "<information>" in prompt
            return answer(found) if asked else query("get_tail_entities", topic, relation)
    return answer(said)


@pytest.fixture
def client(gateway):
    return gateway(FixedPolicy(by_question))


def ask(client, question, session=None, **more):
    body = {"question": question, "kg": "films", **more}
    return client.post("/v1/answer", json=body | ({"session": session} if session else {}))


def begun(client, question="Who directed Big?"):
    return ask(client, question, "new").json()["session"]


def test_a_follow_up_is_understood_and_shown(client):
    first = ask(client, "Who directed Big?", "new").json()
    assert [found["value"] for found in first["answers"]] == ["Penny Marshall"]
    assert first["understood"] == first["question"] == "Who directed Big?"

    second = ask(client, "And Philadelphia?", first["session"]).json()
    assert second["session"] == first["session"]
    assert (second["question"], second["understood"]) == ("And Philadelphia?", "Who directed Philadelphia?")
    assert second["linking"]["topic_entities"] == ["Philadelphia"]
    (mention,) = second["linking"]["mentions"]
    assert second["understood"][mention["start"] : mention["end"]] == "Philadelphia"

    third = ask(client, "Where was she born?", begun(client)).json()
    assert third["understood"] == "Where was Penny Marshall born?"


def test_a_stream_says_at_once_how_the_question_was_understood(client):
    session = begun(client)
    told = ask(client, "And Philadelphia?", session, stream=True).text
    events = [event for event in told.split("\n\n") if event.startswith(("event: linked", "event: done"))]
    assert len(events) == 2
    for event in events:
        assert '"understood":"Who directed Philadelphia?"' in event
        assert f'"session":"{session}"' in event


def test_how_a_question_was_understood_can_be_corrected(client):
    session = begun(client)
    assert ask(client, "And him?", session, understood="Who starred in Big?").json()["understood"] == (
        "Who starred in Big?"
    )
    wrong = ask(client, "And Philadelphia?", session).json()
    assert wrong["understood"] == "Who starred in Philadelphia?"
    right = ask(client, "And Philadelphia?", session, understood="Who directed Philadelphia?").json()
    assert right["understood"] == "Who directed Philadelphia?"
    assert ask(client, "And Big?", session).json()["understood"] == "Who directed Big?"


def test_without_a_session_questions_are_asked_as_they_are(client):
    begun(client)
    document = ask(client, "Where was she born?").json()
    assert "understood" not in document
    assert "session" not in document


def test_an_answer_that_is_read_again_and_its_feedback_say_what_was_understood(client, tmp_path):
    document = ask(client, "And Philadelphia?", begun(client)).json()
    again = client.get(f"/v1/answers/{document['id']}").json()
    assert again == document
    said = {"answer_id": document["id"], "verdict": "wrong", "answers": ["Tom Hanks"]}
    assert client.post("/v1/feedback", json=said).status_code == 201
    assert '"question":"Who directed Philadelphia?"' in (tmp_path / "gateway/feedback.jsonl").read_text()


@pytest.mark.parametrize(
    ("session", "question", "status", "said"),
    [
        ("5f1e", "Who directed Big?", 404, 'no session "5f1e" of this key'),
        ("new", "Where was he born?", 422, 'not mentioned ("he")'),
        ("new", "And Big?", 422, 'not mentioned ("And Big?")'),
        ("s" * 65, "Who directed Big?", 422, "session"),
        (None, "Who directed Big?", 422, "understood needs a session"),
    ],
)
def test_bad_input_is_told(client, session, question, status, said):
    more = {"understood": "Who directed Big?"} if session is None else {}
    refused = ask(client, question, session, **more)
    assert refused.status_code == status
    assert said in refused.json()["detail"]


def test_a_very_long_question_is_refused_before_it_is_read(client):
    refused = ask(client, "and " + " " * 100_000 + "Big?", "new")
    assert refused.status_code == 422
    assert "too many characters" in refused.json()["detail"]


def test_another_graph_knows_nothing_of_a_conversation(client):
    refused = client.post(
        "/v1/answer", json={"question": "Where was she born?", "kg": "rdf", "session": begun(client)}
    )
    assert refused.status_code == 422


@pytest.mark.parametrize("place", ["memory", "redis"])
def test_sessions_are_per_owner_expire_and_are_bounded(place, request):
    now = [0.0]

    async def check():
        if place == "memory":
            shelf = MemoryShelf(2, 2**20, lambda: now[0])
        else:
            from prometheus_client import CollectorRegistry

            from kbqa.telemetry.metrics import Metrics

            url = request.getfixturevalue("redis_url")
            shelf = RedisShelf(url, "kbqa:talk", 2, 2**20, Metrics(CollectorRegistry()), timeout_s=5)
        sessions = Sessions(shelf, 1)
        try:
            for id_ in ("a", "b", "c"):
                await sessions.write("anna", id_, Session(kg="films", said=id_))
            assert (await sessions.read("anna", "c")).said == "c"
            for owner, id_ in (("anna", "a"), ("ben", "c"), ("anna", "d")):
                with pytest.raises(SessionNotFoundError, match="of this key"):
                    await sessions.read(owner, id_)
            now[0] = 2.0
            if place == "redis":
                await asyncio.sleep(1.1)
            with pytest.raises(SessionNotFoundError):
                await sessions.read("anna", "c")
        finally:
            await shelf.close()

    asyncio.run(check())


def test_a_session_forgets_what_was_said_long_ago():
    session = Session(kg="films")
    for number in range(20):
        session = session.with_last(str(number), Exchange(question=str(number)), again=False)
    assert [one.question for one in session.exchanges] == [str(n) for n in range(12, 20)]


def test_the_history_of_a_chat_says_what_the_last_message_refers_to(client):
    said = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "Who directed Big?"},
        {
            "role": "assistant",
            "content": "Penny Marshall\n\nEvidence:\n```\nBig  directed by  Penny Marshall\n```",
        },
        {"role": "user", "content": "And Philadelphia?"},
        {"role": "assistant", "content": "No answer was found."},
        {"role": "user", "content": "and who starred in it?"},
    ]

    def completed(messages, **more):
        body = {"model": "kbqa/films", "messages": messages, **more}
        return client.post("/v1/chat/completions", json=body).json()

    document = completed(said)["kbqa"]
    assert document["understood"] == "Who starred in Philadelphia?"
    assert [found["value"] for found in document["answers"]] == ["Tom Hanks"]
    assert "session" not in document
    assert completed(said[:3] + [{"role": "user", "content": "Where was she born?"}])["kbqa"][
        "understood"
    ] == ("Where was Penny Marshall born?")
    text = completed(said)["choices"][0]["message"]["content"]
    assert "Understood as: Who starred in Philadelphia?" in text
    assert "understood" not in completed(said[-1:])["kbqa"]


def test_a_configured_chat_model_completes_the_question_and_rules_do_if_it_fails(gateway):
    with serve_chat() as server:
        server.says("Who starred in Philadelphia?")
        client = gateway(FixedPolicy(by_question), chat_url=server.url, chat_model="m")
        first = ask(client, "Who directed Big?", "new").json()
        assert ask(client, "and who was in the other one", first["session"]).json()["understood"] == (
            "Who starred in Philadelphia?"
        )
    assert ask(client, "And Big?", first["session"]).json()["understood"] == "Who starred in Big?"
