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
        stream: not available yet.
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

    @field_validator("question")
    @classmethod
    def _not_blank(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("the question is empty")
        return question.strip()


class Evidence(BaseModel):
    """Triples (subject, relation, object), by id, from a topic entity to the answer."""

    triples: list[tuple[str, str, str]]


AnswerKind = Literal["entity", "literal", "count", "boolean", "date"]


class Answer(BaseModel):
    """One answer.

    Attributes:
        value: as the policy gave it.
        id: of the entity, or a literal's N-Triples form; absent if no observation showed it.
        label: under which the graph lists it; absent likewise.
        datatype: IRI, of a typed literal.
        support: in how many of the runs it was given, "2/3".
        evidence: empty if no observation showed the answer.
    """

    value: str
    kind: AnswerKind
    id: str | None = None
    label: str | None = None
    datatype: str | None = None
    support: str
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
        status: `answered`; `unsupported` if no observation showed any of the answers;
            `no_answer`; `no_topic_entity` if the question names nothing in the graph;
            `partial` if the time was over before there was an answer.
        answers: of all runs, those that most runs gave first.
    """

    id: str
    question: str
    kg: str
    status: AnswerStatus
    answers: list[Answer]
    runs: list[Run]
    policy_version: str
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
