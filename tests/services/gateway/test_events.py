"""The order of events, and how they are written."""

from __future__ import annotations

import json

import pytest

from kbqa.client.events import (
    EVENT,
    ActionEvent,
    AnswerEvent,
    DoneEvent,
    ErrorEvent,
    EventOrder,
    LinkedEvent,
    ObservationEvent,
    Problem,
    ThoughtEvent,
    server_sent,
)
from kbqa.client.models import Answer, AnswerResponse, Linking, TripleEvidence, Usage

LINKED = LinkedEvent(
    id="a",
    kg="films",
    kg_version="1",
    policy="p",
    policy_version="v",
    recipe="r",
    linking=Linking(topic_entities=["Big"], mentions=[]),
)
ANSWER = AnswerEvent(
    answer=Answer(value="x", kind="literal", support="1/1", evidence=TripleEvidence(triples=[]))
)
DONE = DoneEvent(
    document=AnswerResponse(
        id="a",
        question="?",
        kg="films",
        status="no_answer",
        answers=[],
        runs=[],
        policy="p",
        policy_version="v",
        recipe="r",
        usage=Usage(llm_calls=0, prompt_tokens=0, generated_tokens=0, kg_calls=0, elapsed_ms=0),
    )
)
FAILED = ErrorEvent(problem=Problem(type="about:blank", title="Gone", status=503, detail="gone"))


def thought(run, turn):
    return ThoughtEvent(run=run, turn=turn, thought="so")


def action(run, turn):
    return ActionEvent(run=run, turn=turn, action={"action": "get_tail_entities"})


def accept_all(events):
    order = EventOrder()
    for event in events:
        order.accept(event)


def observed(run, turn, text="Tom\nHanks"):
    return ObservationEvent(
        run=run,
        turn=turn,
        observation=text,
        status="ok",
        codes=[None],
        triples=[("Big", "starred", "Tom Hanks")],
        labels={},
        elapsed_ms=1,
    )


@pytest.mark.parametrize(
    "events",
    [
        [DONE],
        [FAILED],
        [LINKED, DONE],
        [LINKED, thought(0, 1), DONE],
        [LINKED, thought(0, 1), action(0, 1), action(0, 1), observed(0, 1), thought(0, 2), ANSWER, DONE],
        [LINKED, thought(0, 1), thought(1, 1), observed(1, 1), observed(0, 1), thought(0, 2), FAILED],
    ],
)
def test_what_is_in_order(events):
    order = EventOrder()
    for event in events:
        assert not order.ended
        order.accept(event)
    assert order.ended


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([thought(0, 1)], "before linked"),
        ([LINKED, LINKED], "linked twice"),
        ([ANSWER], "before linked"),
        ([DONE, DONE], "after the end"),
        ([LINKED, FAILED, ANSWER], "after the end"),
        ([LINKED, ANSWER, thought(0, 1)], "after an answer"),
        ([LINKED, thought(0, 2)], "turn 2 after turn 0"),
        ([LINKED, thought(0, 1), thought(0, 2)], "before the observation of turn 1"),
        ([LINKED, action(0, 1)], "in turn 0"),
        ([LINKED, thought(0, 1), action(1, 1)], "run 1, turn 1 in turn 0"),
        ([LINKED, thought(0, 1), observed(0, 1), action(0, 1)], "after its observation"),
        ([LINKED, thought(0, 1), observed(0, 1), observed(0, 1)], "after its observation"),
    ],
)
def test_what_is_out_of_order(events, says):
    with pytest.raises(ValueError, match=says):
        accept_all(events)


@pytest.mark.parametrize("event", [LINKED, thought(0, 1), action(0, 1), observed(0, 1), ANSWER, DONE, FAILED])
def test_every_event_is_one_line_that_reads_as_itself(event):
    name, data, *rest = server_sent(event).split("\n")
    assert (name, rest) == (f"event: {event.event}", ["", ""])
    body = json.loads(data.removeprefix("data: "))
    assert body["run"] == event.run
    assert body["event"] == event.event
    assert EVENT.validate_python(body) == event
