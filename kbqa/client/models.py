"""`POST /v1/answer`: what is asked and what is answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from kbqa.trajectory import Status

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class AnswerRequest(BaseModel):
    """A question about a graph.

    Attributes:
        question: in natural language.
        kg: name of the graph.
        topic_entities: entities that the question is about, by id or exact label; found in
            the question when left out.
        graph: id of a per-question subgraph.
        recipe: that the policy must have been trained with.
        n_runs: runs whose answers are united: the first is greedy, the others are sampled.
        max_turns: most turns of a run; the recipe's number when left out.
        timeout_s: seconds after which what is there is answered.
        stream: tell what happens as server-sent events (see `events`), the document last.
        require_evidence: leave answers out that nothing in the graph supports.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    question: str
    kg: Name
    topic_entities: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    graph: Name | None = None
    recipe: Name | None = None
    n_runs: Annotated[int, Field(ge=1)] = 1
    max_turns: Annotated[int, Field(ge=1)] | None = None
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    stream: bool = False
    require_evidence: bool = False

    @field_validator("question")
    @classmethod
    def _not_blank(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("the question is empty")
        return question.strip()


Triple = tuple[str, str, str]
"""Subject, relation and object, by id."""


class Candidate(BaseModel):
    """An entity that a mention may stand for.

    Attributes:
        score: 1 for the name itself, less for what only resembles it.
        used: whether the runs began there; `topic_entities` may name another one.
    """

    id: str
    label: str
    score: float
    used: bool


class MentionModel(BaseModel):
    """`question[start:end]` is `text`, and names one of the candidates; the best come first."""

    text: str
    start: int
    end: int
    candidates: list[Candidate]


class Linking(BaseModel):
    """What the question is about.

    Attributes:
        topic_entities: where the runs begin, as ids (as the request writes them, if it does).
        mentions: how they were found; empty if the request names them.
    """

    topic_entities: list[str]
    mentions: list[MentionModel]


class TripleEvidence(BaseModel):
    """Triples that lead from a topic entity to the answer, in that order; empty if there is no support."""

    triples: list[Triple]


class QueryEvidence(BaseModel):
    """A query and those of its rows that hold the answer.

    Attributes:
        rows: variable → term, as SPARQL's JSON results write it, with its `id` and `label`.
        boolean: what an ASK answered, which has no rows.
    """

    sparql: str
    rows: list[dict[str, dict[str, str]]]
    boolean: bool | None = None


Evidence = TripleEvidence | QueryEvidence
AnswerKind = Literal["entity", "literal", "count", "boolean", "date"]


class Answer(BaseModel):
    """One answer.

    Attributes:
        value: as the policy gave it.
        id: of the entity, or a literal's N-Triples form; absent if no observation showed it.
        label: under which the graph lists it; absent likewise.
        datatype: IRI, of a typed literal.
        support: in how many of the runs it was given, "2/3".
        unsupported: whether nothing in the graph says so: `evidence` has no triples then.
        evidence: checked against the graph, moments ago.
    """

    value: str
    kind: AnswerKind
    id: str | None = None
    label: str | None = None
    datatype: str | None = None
    support: str
    unsupported: bool = False
    evidence: Evidence


class TurnRecord(BaseModel):
    """One turn of a run, counted from 1; actions as kg_server takes them, with the code of a failed one."""

    turn: int
    thought: str
    actions: list[dict[str, Any]]
    observations: list[str]
    elapsed_ms: float


class Run(BaseModel):
    """One run; `status` is how its episode ended."""

    status: Status
    trajectory: list[TurnRecord]


class Usage(BaseModel):
    """What the answer cost. Prompt tokens are counted anew for each call of the policy."""

    llm_calls: int
    prompt_tokens: int
    generated_tokens: int
    kg_calls: int
    elapsed_ms: float


AnswerStatus = Literal["answered", "no_answer", "no_topic_entity", "partial", "unsupported"]


class AnswerResponse(BaseModel):
    """The answers to a question, and how they were found.

    Attributes:
        status: `answered`; `unsupported` if nothing in the graph supports any of the answers;
            `no_answer`; `no_topic_entity` if the question names nothing in the graph;
            `partial` if the time was over before there was an answer.
        kg_version: of the graph that was asked; absent if the time was over before that.
        linking: where the runs began; absent likewise.
        answers: of all runs, those that most runs gave first.
        policy_version, recipe: who answered.
        fallback: why not the policy that is promoted; absent if it was that.
        cached: whether it was answered before, by the same policy from the same graph; it cost
            nothing then, and `runs` are those of that time.
    """

    id: str
    question: str
    kg: str
    kg_version: str | None = None
    status: AnswerStatus
    linking: Linking | None = None
    answers: list[Answer]
    runs: list[Run]
    policy_version: str
    recipe: str
    fallback: str | None = None
    cached: bool = False
    usage: Usage


class GraphModel(BaseModel):
    """A loaded graph; `version` is a short hash of its content."""

    name: str
    version: str
    triples: int | None
    entities: int | None


class GraphsModel(BaseModel):
    """The graphs that can be asked about."""

    graphs: list[GraphModel]


Verdict = Literal["right", "partly", "wrong"]


class FeedbackRequest(BaseModel):
    """What a user says of an answer.

    Attributes:
        answer_id: `id` of the answer's document.
        answers: those that are right, by id or exact label; may be left out of what is `right`.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "answer_id": "0b8f7c5d4e3a42f1a6b9c8d7e6f5a4b3",
                    "verdict": "wrong",
                    "answers": ["Vincente Minnelli"],
                    "comment": "that was the film of 1944",
                }
            ]
        },
    )

    answer_id: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    verdict: Verdict
    answers: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1000)] | None = None
    comment: Annotated[str, StringConstraints(max_length=10_000)] | None = None


class FeedbackReceipt(BaseModel):
    """Feedback that is kept, under `id`."""

    id: str


class ServingPolicy(BaseModel):
    """Who answers now; `fallback` says why it is not the policy that is wanted."""

    version: str
    recipe: str
    fallback: str | None = None


class PolicyModel(BaseModel):
    """A published version.

    Attributes:
        kind: whole weights, or an adapter of `base_model`.
        step: optimiser steps of reinforcement learning behind it.
        metrics: that its run measured.
        created_at: ISO 8601, UTC.
        promoted: whether it is the one that is to answer.
    """

    version: str
    run: str
    recipe: str
    kind: Literal["full", "lora"]
    base_model: str | None
    step: int
    metrics: dict[str, float]
    created_at: str
    promoted: bool


class PoliciesModel(BaseModel):
    """Who answers, and the versions that could; `serving` is null while there is none."""

    serving: ServingPolicy | None
    policies: list[PolicyModel]
