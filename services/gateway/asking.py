"""One question, from its topic entities to its runs; synchronous, for a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from kbqa.environment import Budget
from kbqa.errors import GraphNotFoundError, GraphUnavailableError
from kbqa.kg.actions import GET_TAIL_RELATIONS, LINK_ENTITIES, Action, ActionResult, ErrorKind, Failure
from kbqa.kg.client import HttpGraphTools
from kbqa.rollouts import Agent, TurnListener, linear_rollout
from kbqa.trajectory import Question, Status, Trajectory, Turn
from services.gateway.errors import PromptTooLongError, SubgraphNotFoundError, UnknownTopicEntityError
from services.gateway.policies import ServedPolicy
from services.gateway.schemas import AnswerRequest

_SAMPLING_TEMPERATURE = 1.0


class Progress:
    """What is known of a question's runs so far; read by another thread when the time is over.

    Attributes:
        topics: ids of the topic entities; None until they are known.
        kg_calls: graph actions executed before the first turn.
    """

    def __init__(self, n_runs: int) -> None:
        self.topics: tuple[str, ...] | None = None
        self.kg_calls = 0
        self._lock = threading.Lock()
        self._turns: list[list[Turn]] = [[] for _ in range(n_runs)]
        self._finished: dict[int, Trajectory] = {}

    def listener(self, first: int) -> TurnListener:
        """Takes the turns of a rollout whose runs are numbered from `first`."""

        def listen(run: int, turn: Turn) -> None:
            with self._lock:
                self._turns[first + run].append(turn)

        return listen

    def finish(self, first: int, trajectories: Sequence[Trajectory]) -> None:
        with self._lock:
            self._finished.update(enumerate(trajectories, first))

    def runs(self) -> list[Trajectory]:
        """All runs; those that have not finished as timed out after the turns they had."""
        with self._lock:
            return [
                self._finished.get(run, Trajectory((), tuple(turns), Status.TIMED_OUT))
                for run, turns in enumerate(self._turns)
            ]


def ask(
    request: AnswerRequest,
    served: ServedPolicy,
    tools: HttpGraphTools,
    progress: Progress,
    *,
    question_id: str,
    deadline: float,
    max_topic_entities: int,
) -> None:
    """Answer a question into `progress`: one greedy run, then the sampled ones together.

    Args:
        deadline: `time.monotonic()` after which runs end at their next turn.

    Raises:
        GraphNotFoundError, SubgraphNotFoundError, UnknownTopicEntityError, PromptTooLongError:
            the request cannot be answered as it is.
        GraphUnavailableError, PolicyUnavailableError: a part of the system is down.
    """
    topics = _topics(request, tools, progress, max_topic_entities)
    progress.topics = topics
    if not topics:
        return
    budget = served.budget
    if request.max_turns is not None:
        budget = replace(budget, max_turns=request.max_turns)
    question = Question(question_id, request.question, (), topics, request.kg, request.graph)
    _check_length(question, served, budget)
    agent = Agent(served.policy, served.codec, served.protocol, tools, budget)
    for first, n, temperature in ((0, 1, 0.0), (1, request.n_runs - 1, _SAMPLING_TEMPERATURE)):
        if n and time.monotonic() < deadline:
            listener = progress.listener(first)
            runs = linear_rollout(agent, question, n, temperature, deadline=deadline, on_turn=listener)
            progress.finish(first, runs)


def _topics(request: AnswerRequest, tools: HttpGraphTools, progress: Progress, most: int) -> tuple[str, ...]:
    """Topic entities as the request names them, or as ids where they are found in its question."""
    known = [graph.name for graph in tools.graphs()]
    if request.kg not in known:
        raise GraphNotFoundError(request.kg, known)
    given = tuple(dict.fromkeys(request.topic_entities or ()))
    if given:
        actions = [Action(GET_TAIL_RELATIONS, {"entity": entity, "limit": 1}) for entity in given]
    else:
        actions = [Action(LINK_ENTITIES, {"question": request.question, "limit": most})]
    results = tools.execute(request.kg, actions, graph=request.graph)
    progress.kg_calls = len(actions)
    if request.graph is not None and any(_is(result, ErrorKind.SAMPLE_MISSING) for result in results):
        raise SubgraphNotFoundError(request.graph, request.kg)
    if given:
        unknown = [e for e, r in zip(given, results, strict=True) if _is(r, ErrorKind.ENTITY_NOT_IN_KG)]
        if unknown:
            raise UnknownTopicEntityError(unknown, request.kg)
        return given
    (linked,) = results
    if isinstance(linked, Failure):
        raise GraphUnavailableError(f"entities cannot be found in the question: {linked.message}")
    return tuple(dict.fromkeys(item.id for item in linked.items))


def _is(result: ActionResult, kind: ErrorKind) -> bool:
    return isinstance(result, Failure) and result.kind is kind


def _check_length(question: Question, served: ServedPolicy, budget: Budget) -> None:
    tokens = len(served.codec.encode(served.protocol.begin(question, budget.max_turns).prompt()))
    if tokens >= budget.max_tokens:
        raise PromptTooLongError(tokens, budget.max_tokens)
