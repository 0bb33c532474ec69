"""The steps of answering a question, as server-sent events.

Each event is one JSON object. It is the `data` of a server-sent event that is named after the
object's `event`. `run` counts from 0, like the document's `runs`; it is null if an event concerns
all runs. The order follows a grammar, in which the events of different runs are interleaved:

    stream = [linked step* answer*] (done | error)
    step   = an event of any run; the events of each run form
    run    = turn*                        turns count from 1, without gaps
    turn   = thought action* [observation]

`thought` and `action` are sent as soon as the policy has written a turn, `observation` when the
graph has answered. A turn without observation is the last of its run: an answer, or the end of a
budget. `answer` is sent once per answer, after the runs were merged and their evidence was checked;
candidates, of which the policy is not sure enough, are in the document only.
`done` contains the whole document, including everything sent before; `error` contains a problem
document (RFC 9457). Both end the stream. If the time is over before the topic entities are known,
the stream has only `done`; if an error occurs before that, only `error`.

`EventOrder` checks this grammar as a state machine:

    order = EventOrder()
    for event in events:
        order.accept(event)
    assert order.ended
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from kbqa.client.models import Answer, AnswerResponse, Linking, Triple
from kbqa.trajectory import Status


class LinkedEvent(BaseModel):
    """The policy that answers, and the entities at which the runs begin.

    Attributes:
        id: of the answer.
        kg_version: version of the graph.
        policy, policy_version, recipe: the policy that answers.
        fallback: why the promoted policy does not answer; absent if it does.
        understood, session: as in the document, if the question belongs to a conversation.
        linking: topic entities; if there are none, the question names nothing in the graph.
    """

    event: Literal["linked"] = "linked"
    run: None = None
    id: str
    kg: str
    kg_version: str
    policy: str
    policy_version: str
    recipe: str
    fallback: str | None = None
    understood: str | None = None
    session: str | None = None
    linking: Linking


class ThoughtEvent(BaseModel):
    """The policy has written a turn."""

    event: Literal["thought"] = "thought"
    run: int
    turn: int
    thought: str


class ActionEvent(BaseModel):
    """One action of a turn, in kg_server's format."""

    event: Literal["action"] = "action"
    run: int
    turn: int
    action: dict[str, Any]


class ObservationEvent(BaseModel):
    """The result of a turn.

    Attributes:
        observation: the text that the policy reads.
        status: of the turn.
        codes: error code of each of the turn's actions, null if it succeeded.
        triples: triples that the actions walked, by id; only the first if there are many.
        labels: id → label, for the entities in the triples whose label differs from the id.
        elapsed_ms: time of the whole turn.
    """

    event: Literal["observation"] = "observation"
    run: int
    turn: int
    observation: str
    status: Status
    codes: list[str | None]
    triples: list[Triple]
    labels: dict[str, str]
    elapsed_ms: float


class AnswerEvent(BaseModel):
    """One of the merged answers."""

    event: Literal["answer"] = "answer"
    run: None = None
    answer: Answer


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class ErrorEvent(BaseModel):
    """The question cannot be answered; the problem is the same as in a response without a stream."""

    event: Literal["error"] = "error"
    run: None = None
    problem: Problem


class DoneEvent(BaseModel):
    """The whole document of `POST /v1/answer`."""

    event: Literal["done"] = "done"
    run: None = None
    document: AnswerResponse


Event = Annotated[
    LinkedEvent | ThoughtEvent | ActionEvent | ObservationEvent | AnswerEvent | ErrorEvent | DoneEvent,
    Field(discriminator="event"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads events: `EVENT.validate_json(data)`."""


class EventOrder:
    """Checks that events follow the grammar above.

    Attributes:
        ended: whether `done` or `error` was accepted.
    """

    def __init__(self) -> None:
        self.ended = False
        self._linked = self._answered = False
        self._turns: dict[int, int] = {}  # run → its latest turn
        self._observed: dict[int, bool] = {}  # run → whether that turn has its observation

    def accept(self, event: Event) -> None:
        """Take the next event.

        Raises:
            ValueError: the event is not allowed at this point; says why.
        """
        if self.ended:
            raise ValueError(f"{event.event} after the end")
        match event:
            case DoneEvent() | ErrorEvent():
                self.ended = True
            case LinkedEvent():
                self._require(not self._linked, "linked twice")
                self._linked = True
            case AnswerEvent():
                self._require(self._linked, "an answer before linked")
                self._answered = True
            case _:
                self._step(event)

    def _step(self, event: ThoughtEvent | ActionEvent | ObservationEvent) -> None:
        where = f"{event.event} of run {event.run}, turn {event.turn}"
        self._require(self._linked, f"{where} before linked")
        self._require(not self._answered, f"{where} after an answer")
        latest, observed = self._turns.get(event.run, 0), self._observed.get(event.run, True)
        if isinstance(event, ThoughtEvent):
            self._require(event.turn == latest + 1, f"{where} after turn {latest}")
            self._require(observed, f"{where} before the observation of turn {latest}")
            self._turns[event.run], self._observed[event.run] = event.turn, False
        else:
            self._require(event.turn == latest, f"{where} in turn {latest}")
            self._require(not observed, f"{where} after its observation")
            self._observed[event.run] = isinstance(event, ObservationEvent)

    @staticmethod
    def _require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise ValueError(otherwise)


def server_sent(event: Event) -> str:
    """An event in the format of `text/event-stream`; absent fields are omitted, as in the document."""
    data = event.model_dump_json(exclude_none=True)  # one line: line ends are escaped
    if event.run is None:
        data = f'{{"run":null,{data[1:]}'
    return f"event: {event.event}\ndata: {data}\n\n"
