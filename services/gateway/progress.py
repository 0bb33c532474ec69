"""The progress of a question: its thread writes it, events report it, and the final document reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kbqa.client.events import ActionEvent, Event, LinkedEvent, ObservationEvent, ThoughtEvent
from kbqa.client.models import Linking
from kbqa.evidence import Claims, hops
from kbqa.kg.actions import Action
from kbqa.trajectory import ExecutedAction, Status, Trajectory, Turn
from services.gateway.answers import told_action

_MAX_TRIPLES = 100  # maximum per turn in an event; a page cannot draw more


class Progress:
    """The runs of one question.

    Args:
        claims: the evidence of their answers.
        tell: called with each event, in the question's thread.

    Attributes:
        linking: None until it is known.
        kg_calls: graph actions executed before the first turn.
    """

    def __init__(self, n_runs: int, claims: Claims, tell: Callable[[Event], None]) -> None:
        self.linking: Linking | None = None
        self.kg_calls = 0
        self.claims = claims
        self._tell = tell
        self._lock = threading.Lock()
        self._turns: list[list[Turn]] = [[] for _ in range(n_runs)]
        self._finished: dict[int, Trajectory] = {}

    def link(self, linked: LinkedEvent) -> None:
        self.linking = linked.linking
        self._tell(linked)

    def listener(self, first: int) -> RunListener:
        """The listener of a rollout whose runs are numbered from `first`."""
        return RunListener(self, first)

    def wrote(self, run: int, turn: Turn, actions: Sequence[Action | ExecutedAction]) -> None:
        number = len(self._turns[run]) + 1
        self._tell(ThoughtEvent(run=run, turn=number, thought=turn.thought))
        for action in actions:
            self._tell(ActionEvent(run=run, turn=number, action=told_action(action)))

    def took(self, run: int, turn: Turn, asked: int) -> None:
        """Record a completed turn, and report its observation and the actions not reported yet.

        Args:
            asked: number of the turn's actions that `wrote` has already reported.
        """
        with self._lock:
            self._turns[run].append(turn)
            number = len(self._turns[run])
        for action in turn.actions[asked:]:
            self._tell(ActionEvent(run=run, turn=number, action={"action": action.name, **action.arguments}))
        if turn.observation:
            self._tell(_observation(run, number, turn))

    def finish(self, first: int, trajectories: Sequence[Trajectory]) -> None:
        with self._lock:
            self._finished.update(enumerate(trajectories, first))

    def runs(self) -> list[Trajectory]:
        """All runs; unfinished ones count as timed out after their last turn."""
        with self._lock:
            return [
                self._finished.get(run, Trajectory((), tuple(turns), Status.TIMED_OUT))
                for run, turns in enumerate(self._turns)
            ]


class RunListener:
    """`kbqa.rollouts.Listener` of the runs numbered from `first`."""

    def __init__(self, progress: Progress, first: int) -> None:
        self._progress, self._first = progress, first
        self._asked: dict[int, int] = {}

    def wrote(self, run: int, turn: Turn, actions: Sequence[Action | ExecutedAction]) -> None:
        self._asked[run] = len(actions)
        self._progress.wrote(self._first + run, turn, actions)

    def took(self, run: int, turn: Turn) -> None:
        self._progress.took(self._first + run, turn, self._asked[run])


def _observation(run: int, number: int, turn: Turn) -> ObservationEvent:
    found = (hop.triple for action in turn.actions if action.succeeded for hop in hops(action))
    triples = list(dict.fromkeys(found))[:_MAX_TRIPLES]
    names = {id_: label for a in turn.actions for id_, label in zip(a.items, a.labels, strict=True)}
    ends = dict.fromkeys(id_ for triple in triples for id_ in (triple[0], triple[2]))
    return ObservationEvent(
        run=run,
        turn=number,
        observation=turn.observation,
        status=turn.status,
        codes=[action.code for action in turn.actions],
        triples=triples,
        # Entities on the way to an item have no label here; an earlier turn may have one.
        labels={id_: names[id_] for id_ in ends if names.get(id_, id_) != id_},
        elapsed_ms=round(turn.elapsed_ms, 3),
    )
