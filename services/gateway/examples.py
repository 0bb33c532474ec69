"""Examples in the API documentation: requests, a document and a stream, as the gateway writes them."""

from __future__ import annotations

from typing import Any

from kbqa.client.batches import BatchAnswer
from kbqa.client.events import (
    ActionEvent,
    AnswerEvent,
    DoneEvent,
    ErrorEvent,
    Event,
    LinkedEvent,
    ObservationEvent,
    Problem,
    ThoughtEvent,
    server_sent,
)
from kbqa.client.models import (
    Answer,
    AnswerResponse,
    Candidate,
    Linking,
    MentionModel,
    QueryEvidence,
    Run,
    TripleEvidence,
    TurnRecord,
    Usage,
)
from kbqa.policy_store.shipped import READER
from kbqa.trajectory import Status
from services.gateway.answers import withheld

_ID = "7d1c8fd6f1c54c9f9f6e5a5b1d1f2a30"
_SESSION = "0b5f7a52d4c94b7a8d3e6c1f9a2b4c6d"
_THOUGHT = "Its director is one hop away."
_ACTION = {"action": "get_tail_entities", "entity": "Kismet", "relation": "directed_by"}
_OBSERVATION = (
    '<information>Tail entities for relation "directed_by" with head "Kismet": William Dieterle</information>'
)
_TRIPLE = ("Kismet", "directed_by", "William Dieterle")
_LINKING = Linking(
    topic_entities=["Kismet"],
    mentions=[
        MentionModel(
            text="Kismet",
            start=13,
            end=19,
            candidates=[Candidate(id="Kismet", label="Kismet", score=1.0, used=True)],
        )
    ],
)
_ANSWER = Answer(
    value="William Dieterle",
    kind="entity",
    id="William Dieterle",
    label="William Dieterle",
    support="1/1",
    evidence=TripleEvidence(triples=[_TRIPLE]),
)
_COUNTED = '"2"^^<http://www.w3.org/2001/XMLSchema#integer>'
_COUNT = Answer(
    value="2",
    kind="count",
    id=_COUNTED,
    label="2",
    datatype="http://www.w3.org/2001/XMLSchema#integer",
    support="1/1",
    evidence=QueryEvidence(
        sparql="SELECT (COUNT(?film) AS ?n) WHERE { ?film <urn:directed_by> <urn:William%20Dieterle> }",
        rows=[
            {
                "n": {
                    "type": "literal",
                    "value": "2",
                    "datatype": "http://www.w3.org/2001/XMLSchema#integer",
                    "id": _COUNTED,
                    "label": "2",
                }
            }
        ],
    ),
)
_DOCUMENT = AnswerResponse(
    id=_ID,
    question="Who directed Kismet?",
    kg="metaqa",
    kg_version="5f2b9c01",
    evidence_versions=["5f2b9c01"],
    status="answered",
    linking=_LINKING,
    answers=[_ANSWER],
    confidence=0.912,
    runs=[
        Run(
            status=Status.ANSWERED,
            trajectory=[
                TurnRecord(
                    turn=1,
                    thought=_THOUGHT,
                    actions=[_ACTION],
                    observations=[_OBSERVATION],
                    elapsed_ms=41.2,
                ),
                TurnRecord(turn=2, thought="", actions=[], observations=[], elapsed_ms=18.9),
            ],
        )
    ],
    policy="metaqa-20261012-093015-1a2b",
    policy_version="v000006-1f2e3d4c",
    recipe="kg-r1-small",
    usage=Usage(llm_calls=2, prompt_tokens=143, generated_tokens=38, kg_calls=5, elapsed_ms=66.4),
)
_EVENTS: list[Event] = [
    LinkedEvent(
        id=_ID,
        kg="metaqa",
        kg_version="5f2b9c01",
        policy="metaqa-20261012-093015-1a2b",
        policy_version="v000006-1f2e3d4c",
        recipe="kg-r1-small",
        linking=_LINKING,
    ),
    ThoughtEvent(run=0, turn=1, thought=_THOUGHT),
    ActionEvent(run=0, turn=1, action=_ACTION),
    ObservationEvent(
        run=0,
        turn=1,
        observation=_OBSERVATION,
        status=Status.OK,
        codes=[None],
        triples=[_TRIPLE],
        labels={},
        elapsed_ms=41.2,
    ),
    ThoughtEvent(run=0, turn=2, thought=""),
    AnswerEvent(answer=_ANSWER),
    DoneEvent(document=_DOCUMENT),
]
_FAILED: list[Event] = [
    _EVENTS[0],
    ErrorEvent(
        problem=Problem(
            type="urn:kbqa:problem:policy-unavailable",
            title="Service Unavailable",
            status=503,
            detail="the policy engine is closed",
        )
    ),
]
_COUNT_DOCUMENT = _DOCUMENT.model_copy(
    update={
        "question": "How many films did William Dieterle direct?",
        "answers": [_COUNT],
        "fallback": "no policy is promoted yet",
        "cached": True,
    }
)
_FOLLOW_UP_DOCUMENT = _DOCUMENT.model_copy(
    update={"question": "Who directed it?", "understood": "Who directed Kismet?", "session": _SESSION}
)
_CANDIDATE_DOCUMENT = withheld(
    _DOCUMENT.model_copy(
        update={"policy": READER, "policy_version": "v000001-0c1d2e3f", "confidence": 0.31, "presence": 0.84}
    ),
    min_confidence=0.5,
)


def _json(document: AnswerResponse) -> dict[str, Any]:
    return document.model_dump(mode="json", exclude_none=True)


REQUESTS: dict[str, Any] = {
    "question": {"value": {"question": "Who directed Kismet?", "kg": "metaqa"}},
    "everything": {
        "value": {
            "question": "Who directed Kismet?",
            "kg": "metaqa",
            "topic_entities": ["Kismet"],
            "graph": "q17",
            "recipe": "kg-r1-small",
            "n_runs": 3,
            "max_turns": 6,
            "timeout_s": 20.0,
            "stream": True,
            "require_evidence": True,
            "min_confidence": 0.8,
        }
    },
    "conversation": {
        "summary": "A follow-up question, with the caller's own reading of it",
        "value": {
            "question": "Who directed it?",
            "kg": "metaqa",
            "session": _SESSION,
            "understood": "Who directed Kismet?",
        },
    },
}
DOCUMENTS: dict[str, Any] = {
    "triples": {"summary": "Triples as evidence", "value": _json(_DOCUMENT)},
    "query": {"summary": "A query as evidence; answered by a fallback", "value": _json(_COUNT_DOCUMENT)},
    "conversation": {"summary": "The answer to a follow-up question", "value": _json(_FOLLOW_UP_DOCUMENT)},
    "candidate": {
        "summary": "No answer of which the policy is sure enough; by the reader",
        "value": _json(_CANDIDATE_DOCUMENT),
    },
}
BATCHES: dict[str, Any] = {
    "two questions": {
        "value": '{"id": "q1", "question": "Who directed Kismet?", "kg": "metaqa"}\n'
        '{"id": "q2", "question": "Who starred in Big?", "kg": "metaqa", "n_runs": 3}\n'
    }
}
BATCH_ANSWERS: dict[str, Any] = {
    "an answer and an error": {
        "value": "".join(
            f"{answer.model_dump_json(exclude_none=True)}\n"
            for answer in (
                BatchAnswer(line=1, id="q1", answer=_DOCUMENT),
                BatchAnswer(
                    line=2,
                    id="2",
                    error=Problem(
                        type="urn:kbqa:problem:invalid-request",
                        title="Unprocessable Content",
                        status=422,
                        detail="question: Field required",
                    ),
                ),
            )
        )
    }
}
STREAMS: dict[str, Any] = {
    "answered": {"value": "".join(map(server_sent, _EVENTS))},
    "failed": {"value": "".join(map(server_sent, _FAILED))},
}
