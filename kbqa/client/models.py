"""Requests and responses of the gateway's API."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from kbqa.trajectory import Status

NEW_SESSION = "new"
"""`session` of a request that begins a conversation."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class AnswerRequest(BaseModel):
    """A question about a graph.

    Attributes:
        question: the question, in natural language.
        kg: name of the graph.
        topic_entities: entities that the question is about, by id or exact label (default: found in the
            question).
        graph: id of a per-question subgraph.
        recipe: recipe that the policy must have been trained with.
        n_runs: number of runs; their answers are merged. The first takes the policy's likeliest choices, the
            others are sampled.
        max_turns: maximum number of turns per run (default: the recipe's).
        timeout_s: timeout in seconds; the answer then contains what has been found.
        stream: send every step as server-sent events (see `events`), with the document as the last one.
        require_evidence: omit answers that the graph does not support.
        min_confidence: answers are withheld if their confidence or their presence is lower (default: that of
            the key or of the gateway); 0 withholds nothing.
        session: the conversation that the question belongs to: `new`, or the `session` of an earlier answer.
            The question may then leave out what was said before ("Where was he born?").
        understood: the complete question, if the caller knows it; needs a session. With the last question
            repeated, it corrects how that was understood.
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
    min_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    session: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    understood: str | None = None

    @field_validator("question", "understood")
    @classmethod
    def _not_blank(cls, question: str | None) -> str | None:
        if question is None:
            return None
        if not question.strip():
            raise ValueError("the question is empty")
        return question.strip()

    @model_validator(mode="after")
    def _in_a_session(self) -> Self:
        if self.understood is not None and self.session is None:
            raise ValueError("understood needs a session: send `session` with it, or the complete `question`")
        return self


Triple = tuple[str, str, str]
"""Subject, relation and object, by id."""


class Candidate(BaseModel):
    """A possible meaning of a mention.

    Attributes:
        score: 1 for the exact name, less for similar ones.
        used: whether the runs began at it; choose another one with `topic_entities`.
    """

    id: str
    label: str
    score: float
    used: bool


class MentionModel(BaseModel):
    """A name in the question: `question[start:end]` is `text`. The best candidates come first."""

    text: str
    start: int
    end: int
    candidates: list[Candidate]


class Linking(BaseModel):
    """The entities that the question names.

    Attributes:
        topic_entities: entities at which the runs begin, by id, or as written in the request.
        mentions: names that were found in the question; empty if the request gives the entities.
    """

    topic_entities: list[str]
    mentions: list[MentionModel]


class TripleEvidence(BaseModel):
    """Triples that lead from a topic entity to the answer, in that order; empty if there is no support."""

    triples: list[Triple]


class QueryEvidence(BaseModel):
    """A query, with the rows of its result that contain the answer.

    Attributes:
        rows: variable → term, as SPARQL's JSON results write it, with its `id` and `label`.
        boolean: result of an ASK, which has no rows.
    """

    sparql: str
    rows: list[dict[str, dict[str, str]]]
    boolean: bool | None = None


Evidence = TripleEvidence | QueryEvidence
AnswerKind = Literal["entity", "literal", "count", "boolean", "date"]


class Answer(BaseModel):
    """One answer.

    Attributes:
        value: the answer as the policy wrote it.
        id: id of the entity, or a literal in N-Triples form; absent if no observation showed it.
        label: label in the graph; absent if no observation showed it.
        datatype: IRI of a literal's datatype.
        support: share of the runs that gave it, such as "2/3".
        unsupported: whether the graph does not support it; `evidence` then has no triples.
        evidence: evidence that was just checked against the graph.
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
    """One turn of a run, counted from 1. Actions have kg_server's format, with a `code` if they failed."""

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
    """The cost of the answer. Prompt tokens are counted again for each call of the policy."""

    llm_calls: int
    prompt_tokens: int
    generated_tokens: int
    kg_calls: int
    elapsed_ms: float


AnswerStatus = Literal["answered", "no_answer", "no_topic_entity", "partial", "unsupported"]


class AnswerResponse(BaseModel):
    """The answers to a question, and how they were found.

    Attributes:
        question: as it was asked.
        understood: the complete question that was answered, if the question belongs to a conversation; the
            places of `linking` refer to it.
        session: the conversation, for further questions; absent if there is none.
        status: `answered`; `unsupported` if nothing in the graph supports any of the answers;
            `no_answer`, perhaps with candidates; `no_topic_entity` if the question names nothing in the
            graph; `partial` if the time limit was reached before there was an answer.
        kg_version: version of the graph; absent if the time limit was reached before it was known.
        evidence_versions: versions of the graph on which the evidence was confirmed, oldest first; more than
            one if the graph changed meanwhile. Absent if there is no evidence.
        linking: entities at which the runs began; absent in the same case as `kg_version`.
        answers: answers of all runs, those of most runs first.
        candidates: what the policy would have answered if it had been sure enough; the status is then
            `no_answer`.
        reason: why the candidates are not given as answers, or why there are none; None if nobody knows.
        confidence: probability that the first run's answers are right; absent if there are none, or if it was
            not measured how sure the policy's answers are.
        presence: probability, in the policy's view, that the graph has the fact at all; absent if it did not
            compare several episodes.
        policy: name of the policy that answered: the run that has trained it, `reader` for the policy that
            ships with kbqa, or the name of an external model.
        policy_version, recipe: its version, and the recipe that it was trained with.
        fallback: why the promoted policy did not answer; absent if it did.
        cached: whether this is an earlier answer of the same policy from the same graph; it then cost
            nothing, and `runs` are the earlier ones.
    """

    id: str
    question: str
    understood: str | None = None
    session: str | None = None
    kg: str
    kg_version: str | None = None
    evidence_versions: list[str] | None = None
    status: AnswerStatus
    linking: Linking | None = None
    answers: list[Answer]
    candidates: list[Answer] = []
    reason: str | None = None
    confidence: float | None = None
    presence: float | None = None
    runs: list[Run]
    policy: str
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


class NameModel(BaseModel):
    """An entity with one of its names."""

    id: str
    label: str


class NamesModel(BaseModel):
    """Entities of which a name has the words of a text."""

    names: list[NameModel]


class ExamplesModel(BaseModel):
    """Questions that may be asked about a graph, and to which it has answers."""

    questions: list[str]


Verdict = Literal["right", "partly", "wrong"]


class FeedbackRequest(BaseModel):
    """A user's feedback on an answer.

    Attributes:
        answer_id: `id` of the answer's document.
        answers: the correct answers, by id or exact label; may be omitted if the verdict is `right`.
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
    """The id of the saved feedback."""

    id: str


class ServingPolicy(BaseModel):
    """The policy that answers now; `fallback` says why it is not the promoted one."""

    policy: str
    version: str
    recipe: str
    fallback: str | None = None


class PolicyModel(BaseModel):
    """A published version.

    Attributes:
        kind: full weights, or an adapter of `base_model`.
        step: number of optimiser steps of reinforcement learning before it.
        metrics: metrics that its run measured.
        created_at: ISO 8601, UTC.
        promoted: whether it is the promoted version.
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
    """The policy that answers, and the versions that could; `serving` is null while there is none."""

    serving: ServingPolicy | None
    policies: list[PolicyModel]
