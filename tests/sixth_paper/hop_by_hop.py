"""A sixth paper, as somebody else would add it: one module, one recipe, and no file of kbqa.

A policy moves a set of entities through the graph, a relation a turn, without ever naming an entity. Its
reward takes something off for each turn, and its advantages go by the rank of a reward in its group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kbqa.advantages import Credit, has_spread
from kbqa.cold_start.teachers import Lesson
from kbqa.curves import Figure, PaperFigures
from kbqa.kg.actions import Action, ActionResult, ErrorKind, Failure, Item, Success, Triple
from kbqa.kg.arguments import RELATION, TEXTS, Argument
from kbqa.kg.handlers import Surroundings, failure, paging
from kbqa.kg.specs import ActionSpec
from kbqa.protocols.base import Dialogue, Opening, PredictedAnswer, Reply
from kbqa.rewards.base import Instruments, measures
from kbqa.rollouts import Agent, Rollout, linear_rollout
from kbqa.trajectory import Question, RewardedTrajectory, Segment, Trajectory

_COMMAND = re.compile(r"<(hop|done)>(.*?)</\1>", re.DOTALL)


def _move(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    store = surroundings.store
    relations = store.resolve_relation(arguments["relation"])
    limit, _ = paging(surroundings, arguments)
    reached: dict[str, Item] = {}
    ways: dict[str, Triple] = {}
    for entity in arguments["entities"]:
        for relation in relations:
            for item in store.tail_entities([entity], [relation], limit=limit).items:
                reached.setdefault(item.id, item)
                ways.setdefault(item.id, (entity, relation, item.id))
            for item in store.head_entities([entity], [relation], limit=limit).items:
                reached.setdefault(item.id, item)
                ways.setdefault(item.id, (item.id, relation, entity))
    if not reached:
        return failure(ErrorKind.NO_ENTITIES_FOUND, "nothing is there")
    items = tuple(reached.values())[:limit]
    return Success(items, len(reached), details={"ways": [list(ways[item.id]) for item in items]})


def _cites(
    arguments: Mapping[str, Any], items: Sequence[str], details: Mapping[str, Any]
) -> list[tuple[Triple, ...]]:
    return [((head, relation, tail),) for head, relation, tail in details["ways"]]


MOVE = ActionSpec(
    "move",
    "All entities that a relation joins, either way, with one of several entities.",
    _move,
    {"entities": Argument(TEXTS, "ids of entities"), "relation": RELATION},
    cites=_cites,
)


@dataclass(frozen=True, slots=True)
class HopByHop:
    """The dialect: `<hop>relation</hop>` or `<done></done>`."""

    name: ClassVar[str] = "hop_by_hop"
    stop: ClassVar[tuple[str, ...]] = ("</hop>", "</done>")
    tags: ClassVar[tuple[str, ...]] = ("<hop>", "</hop>", "<done>", "</done>", "<seen>", "</seen>")

    def begin(self, question: Question, max_turns: int) -> Hopping:
        return Hopping(question)


class Hopping(Dialogue):
    """An episode; it remembers where it is."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._here = [Item(topic, topic) for topic in question.topic_entities]
        self._said = ""

    def prompt(self) -> list[Segment]:
        return [Segment(self._question.text, trusted=False), Segment("\n")]

    def opening(self, *, native_tools: bool) -> Opening:
        return Opening("Write <hop>relation</hop> to move, or <done></done> to answer.", self._question.text)

    def reply(self, text: str) -> Reply:
        found = _COMMAND.search(text)
        if found is None:
            return Reply(problem="no <hop> or <done> was found")
        if found[1] == "done":
            answers = tuple(PredictedAnswer(item.label, (item.id,)) for item in self._here)
            return Reply(well_formed=True, answers=answers)
        entities = [item.id for item in self._here][:100]
        return Reply(
            well_formed=True, actions=(Action("move", {"entities": entities, "relation": found[2]}),)
        )

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        (result,) = results
        if isinstance(result, Failure):
            self._said = result.message
        else:
            self._here = list(result.items)
            self._said = f"{len(self._here)} entities"
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        return [Segment("<seen>"), Segment(self._said, trusted=False), Segment("</seen>")]

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        return [Segment("<seen>"), Segment(problem), Segment("</seen>")]


@dataclass(frozen=True, slots=True)
class FrugalReward:
    """F1, less `w_turn` a turn."""

    w_turn: float = 0.05

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        found = measures(question, trajectory)
        turns = len(trajectory.turns)
        outcome = found["f1"] - self.w_turn * turns
        return RewardedTrajectory(trajectory, (0.0,) * turns, outcome, {**found, "frugality": -float(turns)})


@dataclass(frozen=True, slots=True)
class RankCredit(Credit):
    """From -1 for the worst episode of a group to 1 for the best."""

    scale: float = 1.0

    def rows(self, members: Sequence[RewardedTrajectory]) -> list[list[float]]:
        returns = [member.outcome for member in members]
        if not has_spread(returns):
            return []
        ordered = sorted(set(returns))
        step = 2 * self.scale / (len(ordered) - 1)
        return [
            [ordered.index(member.outcome) * step - self.scale] * len(member.trajectory.turns)
            for member in members
        ]


@dataclass(frozen=True, slots=True)
class OneGreedy(Rollout):
    """Of each group the first episode is greedy, so that a group shows what the policy would answer."""

    greedy: int = 1

    def play(
        self,
        agent: Agent,
        question: Question,
        n: int,
        temperature: float,
        *,
        seed: int | None = None,
        deadline: float | None = None,
    ) -> list[Trajectory]:
        sampled = n - self.greedy
        return [
            *linear_rollout(agent, question, self.greedy, 0.0, deadline=deadline),
            *linear_rollout(agent, question, sampled, temperature, seed=seed, deadline=deadline),
        ]


def teach(question: Question, max_items: int) -> Lesson:
    """Plays gold paths."""
    for hop in question.path:
        yield f"<hop>{hop.relation}</hop>"
    yield "<done></done>"


FIGURES = PaperFigures("Hop by Hop", (Figure("Training reward", ("reward",), "Figure 1"),))
