"""What happens while a question is answered, as server-sent events.

Each event is one JSON object, also the `data` of a server-sent event that is named after its
`event`. `run` counts from 0, as the document's `runs` do; it is null where an event concerns
them all. The order is a grammar, in which events of different runs mingle:

    stream = [linked step* answer*] (done | error)
    step   = an event of some run; those of each run by themselves are
    run    = turn*                        turns count from 1, without gaps
    turn   = thought action* [observation]

`thought` and `action` come as soon as the policy has written a turn, `observation` when the graph
has answered it. A turn without observation is the last of its run: an answer, or the end of a
budget. `answer` comes when runs are united and evidence is checked, once for each answer.
`done` carries the whole document, which says everything that came before; `error` a problem
document (RFC 9457). Nothing follows either. A question whose time is over before its topic
entities are known has `done` alone, one that fails then `error` alone.

`EventOrder` is that grammar as a state machine:

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
    """Who answers, and where the runs begin.

    Attributes:
        id: of the answer.
        kg_version: of the graph that is asked.
        policy_version, recipe: who answers.
        fallback: why not the policy that is promoted; absent if it is that.
        linking: topic entities; without any the question names nothing in the graph.
    """

    event: Literal["linked"] = "linked"
    run: None = None
    id: str
    kg: str
    kg_version: str
    policy_version: str
    recipe: str
    fallback: str | None = None
    linking: Linking


class ThoughtEvent(BaseModel):
    """The policy has written a turn."""

    event: Literal["thought"] = "thought"
    run: int
    turn: int
    thought: str


class ActionEvent(BaseModel):
    """One action of a turn, as kg_server takes it."""

    event: Literal["action"] = "action"
    run: int
    turn: int
    action: dict[str, Any]


class ObservationEvent(BaseModel):
    """What came of a turn.

    Attributes:
        observation: as the policy reads it.
        status: of the turn.
        codes: of each of the turn's actions its error's, null if it succeeded.
        triples: that the actions walked, by id, the first of many.
        labels: of the entities in them, where they have one that differs.
        elapsed_ms: of the whole turn.
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
    """One of the united answers."""

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
    """The question cannot be answered; the same problem as without a stream, where it has a status."""

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
    """The grammar above.

    Attributes:
        ended: whether `done` or `error` has come.
    """

    def __init__(self) -> None:
        self.ended = False
        self._linked = self._answered = False
        self._turns: dict[int, int] = {}  # run → its latest turn
        self._observed: dict[int, bool] = {}  # run → whether that turn has its observation

    def accept(self, event: Event) -> None:
        """Take the next event.

        Raises:
            ValueError: it must not come now; says why.
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
    """An event as `text/event-stream` writes it; absent members are left out, as in the document."""
    data = event.model_dump_json(exclude_none=True)  # of one line: ends of lines are escaped
    if event.run is None:
        data = f'{{"run":null,{data[1:]}'
    return f"event: {event.event}\ndata: {data}\n\n"
