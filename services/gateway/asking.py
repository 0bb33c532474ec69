"""Answers one question, from its topic entities to its runs; synchronous, for a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbqa.client.events import LinkedEvent
from kbqa.client.models import AnswerRequest, Candidate, Linking, MentionModel
from kbqa.errors import GraphUnavailableError
from kbqa.evidence import confirmed
from kbqa.kg.actions import (
    GET_TAIL_RELATIONS,
    LINK_ENTITIES,
    Action,
    ActionResult,
    ErrorKind,
    Failure,
    GraphTools,
    Mention,
)
from kbqa.protocols.base import begins_anywhere
from kbqa.rollouts import answering_rollout, linear_rollout
from kbqa.serving.policies import ServedPolicy
from kbqa.trajectory import Question, Status
from services.gateway.errors import PromptTooLongError, SubgraphNotFoundError, UnknownTopicEntityError
from services.gateway.meter import Meter, TimedPlayer
from services.gateway.progress import Progress

_ALTERNATIVES = 4  # candidates to search for per topic entity


@dataclass(frozen=True, slots=True)
class Asking:
    """Everything that is needed to answer a question.

    Attributes:
        kg_version: version of the question's graph.
        fallback: why the promoted policy does not answer; None if it does.
        deadline: `time.monotonic()` at which runs end, so that time is left for their evidence.
        cancelled: also ends the runs; their evidence is then not needed.
    """

    request: AnswerRequest
    served: ServedPolicy
    tools: GraphTools
    meter: Meter
    question_id: str
    kg_version: str
    fallback: str | None
    max_topic_entities: int
    deadline: float
    cancelled: threading.Event

    def linked(self, linking: Linking) -> LinkedEvent:
        """The first event."""
        return LinkedEvent(
            id=self.question_id,
            kg=self.request.kg,
            kg_version=self.kg_version,
            policy=self.served.run,
            policy_version=self.served.version,
            recipe=self.served.recipe,
            fallback=self.fallback,
            linking=linking,
        )


def ask(asking: Asking, progress: Progress) -> None:
    """Answer a question into `progress`: the first run, then the others together.

    Raises:
        SubgraphNotFoundError, UnknownTopicEntityError, PromptTooLongError: the request must be changed.
        GraphNotFoundError, GraphUnavailableError, PolicyUnavailableError: a part of the system is down or
            was removed.
    """
    request, served = asking.request, asking.served
    with asking.meter.timed("linking"):
        linking = _link(asking, progress)
    progress.link(asking.linked(linking))
    topics = tuple(linking.topic_entities)
    players = served.players
    if not topics and not begins_anywhere(players.protocol):
        return
    budget = players.budget
    if request.max_turns is not None:
        budget = replace(budget, max_turns=request.max_turns)
    question = Question(asking.question_id, request.question, (), topics, request.kg, request.graph)
    for first, n in ((0, 1), (1, request.n_runs - 1)):
        if not n or asking.cancelled.is_set() or time.monotonic() >= asking.deadline:
            break
        player = TimedPlayer(players.player(asking.tools, first, budget), asking.meter)
        temperature, listener = players.draw(first).temperature, progress.listener(first)
        deadline, cancelled = asking.deadline, asking.cancelled
        if first == 0:
            answering = answering_rollout(
                player, question, temperature, deadline=deadline, cancelled=cancelled, listener=listener
            )
            runs = [answering]
        else:
            runs = linear_rollout(
                player, question, n, temperature, deadline=deadline, cancelled=cancelled, listener=listener
            )
        if runs[0].status is Status.OUT_OF_TOKENS and not runs[0].turns:
            raise PromptTooLongError(len(runs[0].token_ids), budget.max_tokens)
        progress.finish(first, runs)
        if not asking.cancelled.is_set():
            with asking.meter.timed("evidence"):
                confirmed(progress.runs(), frozenset(topics), progress.claims)


def _link(asking: Asking, progress: Progress) -> Linking:
    """The request's topic entities or, if it names none, the entities found in its question."""
    request, most = asking.request, asking.max_topic_entities
    given = tuple(dict.fromkeys(request.topic_entities or ()))
    if given:
        actions = [Action(GET_TAIL_RELATIONS, {"entity": entity, "limit": 1}) for entity in given]
    else:
        actions = [link_action(request.question, most)]
    results = asking.tools.execute(request.kg, actions, graph=request.graph)
    progress.kg_calls = len(actions)
    if request.graph is not None and any(_is(result, ErrorKind.SAMPLE_MISSING) for result in results):
        raise SubgraphNotFoundError(request.graph, request.kg)
    if given:
        unknown = [e for e, r in zip(given, results, strict=True) if _is(r, ErrorKind.ENTITY_NOT_IN_KG)]
        if unknown:
            raise UnknownTopicEntityError(unknown, request.kg)
        return Linking(topic_entities=list(given), mentions=[])
    (linked,) = results
    return linking_of(request.question, mentions_of(linked), most)


def _is(result: ActionResult, kind: ErrorKind) -> bool:
    return isinstance(result, Failure) and result.kind is kind


def link_action(question: str, most: int) -> Action:
    """The action that finds the entities in a question, of which `most` may become topic entities."""
    return Action(LINK_ENTITIES, {"question": question, "limit": most * _ALTERNATIVES})


def mentions_of(linked: ActionResult) -> Sequence[Mention]:
    """The mentions that `link_action` found.

    Raises:
        GraphUnavailableError: the graph did not look for them.
    """
    if isinstance(linked, Failure):
        raise GraphUnavailableError(f"the entities in the question cannot be looked up: {linked.message}")
    return linked.items


def linking_of(question: str, mentions: Sequence[Mention], most: int) -> Linking:
    """The possible meanings of the names in a question, and which of them become topic entities.

    The best candidate of every name is used first, then the second best ones, and so on.

    Args:
        most: maximum number of topic entities.
    """
    places: dict[tuple[int, int], list[Mention]] = {}
    for mention in mentions:
        places.setdefault((mention.start, mention.end), []).append(mention)
    ranked = sorted(
        ((rank, number, m.id) for number, found in enumerate(places.values()) for rank, m in enumerate(found))
    )
    used = set(list(dict.fromkeys(id_ for _, _, id_ in ranked))[:most])
    return Linking(
        topic_entities=list(dict.fromkeys(mention.id for mention in mentions if mention.id in used)),
        mentions=[
            MentionModel(
                text=question[start:end],
                start=start,
                end=end,
                candidates=[
                    Candidate(id=m.id, label=m.label, score=m.score, used=m.id in used) for m in found
                ],
            )
            for (start, end), found in places.items()
        ],
    )
