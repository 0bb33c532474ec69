"""Executes rollout requests. Every request gets a reply: a result, or the reason of its failure."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kbqa.errors import (
    GraphUnavailableError,
    JudgeUnavailableError,
    PolicyUnavailableError,
)
from kbqa.kg.actions import GraphTools
from kbqa.kg.tools import ListedGraphTools
from kbqa.kg.versions import GraphVersions
from kbqa.recipes import Recipe
from kbqa.recipes.play import LinearSection
from kbqa.retries import retry
from kbqa.rewards import Instruments, TreeReward
from kbqa.rollouts import Agent, linear_rollout
from kbqa.runs.failures import reason_of
from kbqa.runs.stopwatch import Stopwatch
from kbqa.serving.engine import Engine, Held
from kbqa.serving.players import Players
from kbqa.trajectory import Group, RewardedTrajectory, Status, Trajectory
from kbqa.tree import RewardedTree, ScoredRollout, Tree
from kbqa.wire import FailureReason, Purpose, RolloutFailure, RolloutReply, RolloutRequest, Timings

logger = logging.getLogger(__name__)

_VERSIONS_S = 5.0  # how long the versions of the graphs are cached

T = TypeVar("T")


class _Refused(Exception):
    """A request that cannot be executed."""

    def __init__(self, reason: FailureReason, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request waits, in seconds.

    Attributes:
        policy_s: for its version.
        graph_s: for the graph to come back.
        rollout_s: for its episodes, or longer, if a recipe's `schedule.request_deadline_s` is longer.
        longest_s: for its episodes at most, whatever its recipe says.
    """

    policy_s: float
    graph_s: float
    rollout_s: float
    longest_s: float = math.inf

    def rollout_of(self, recipe: Recipe) -> float:
        """How long the episodes of a recipe may take, in seconds."""
        # A single query may take as long as all other turns together.
        least = self.rollout_s + (recipe.graph.query_timeout_s or 0.0)
        return min(self.longest_s, max(least, recipe.schedule.request_deadline_s))


@dataclass(frozen=True, slots=True)
class _Played:
    """A scored rollout, and the number of completions that the engine lost, each of an episode of its own."""

    rollout: ScoredRollout
    lost: int


def _screening_seed(seed: int | None) -> int | None:
    """Another one than that of the group, which would repeat the episode."""
    return None if seed is None else random.Random(f"{seed}/screening").getrandbits(31)


class RolloutExecutor:
    """Plays and scores rollout requests; safe for many threads.

    Args:
        worker: name that the replies carry.
    """

    def __init__(self, engine: Engine, graphs: ListedGraphTools, patience: Patience, worker: str) -> None:
        self._engine, self._graphs = engine, graphs
        self._patience, self.worker = patience, worker
        self._versions = GraphVersions(graphs, _VERSIONS_S)

    def execute(self, request: RolloutRequest) -> RolloutReply:
        """Roll out and score a request's group or tree; never raises."""
        began = time.time()
        queued_s = max(0.0, began - request.sent_at)
        try:
            with self._engine.lease(request.run, request.min_policy_version, self._patience.policy_s) as held:
                leased = time.time()
                stopwatch = Stopwatch()
                until = time.monotonic() + self._patience.rollout_of(held.recipe)
                played = self._retrying(lambda: self._roll_out(held, request, stopwatch, until))
                timings = Timings(
                    queued_s=queued_s,
                    policy_s=max(0.0, leased - began),
                    rollout_s=max(0.0, time.time() - leased),
                    engine_s=stopwatch.engine_s,
                    graph_s=stopwatch.graph_s,
                )
                return self._reply(request, timings, played, sampled_tokens=stopwatch.sampled_tokens)
        except Exception as error:  # the trainer must learn of every failure
            reason = error.reason if isinstance(error, _Refused) else reason_of(error)
            failure = RolloutFailure(reason=reason, detail=str(error) or type(error).__name__)
            log = logger.exception if failure.reason is FailureReason.INTERNAL else logger.warning
            log("rollout failed", extra={"reason": failure.reason, "detail": failure.detail})
            return self._reply(request, Timings(queued_s=queued_s), failure=failure)

    def refuse(self, request: RolloutRequest, failure: RolloutFailure) -> RolloutReply:
        """The reply to a request that is not executed."""
        return self._reply(request, Timings(), failure=failure)

    def _roll_out(
        self, held: Held, request: RolloutRequest, stopwatch: Stopwatch, deadline: float
    ) -> _Played:
        if held.recipe_digest != request.recipe_digest:
            raise _Refused(
                FailureReason.RECIPE_MISMATCH,
                f"version {held.version.id} was trained with another recipe than the request names",
            )
        self._require_graph_version(request)
        recipe = held.recipe
        players = Players.of(recipe, stopwatch.policy(held.policy), held.codec)
        # A group in training is sampled as the other runs of a question are.
        agent = players.player(stopwatch.tools(self._graphs), int(request.purpose is Purpose.TRAIN))
        assert isinstance(agent, Agent)
        until: dict[str, Any] = {"seed": request.seed, "deadline": deadline}
        question, n, temperature = request.question, request.n, request.temperature
        is_training = request.purpose is Purpose.TRAIN

        def score(played: Sequence[Trajectory]) -> _Played:
            whole = [trajectory for trajectory in played if trajectory.status is not Status.LOST]
            members = self._score(recipe, agent.tools, request, whole)
            return _Played(Group(request.request_id, question, members), len(played) - len(whole))

        try:
            if is_training and isinstance(recipe.rollout, LinearSection) and recipe.rollout.screened:
                apart = until | {"seed": _screening_seed(request.seed)}
                first = score(linear_rollout(agent, question, 1, temperature, **apart))
                if first.rollout.members and first.rollout.members[0].components["f1"] == 1:
                    return first
            # Inference, and with it every evaluation, is linear.
            if is_training:
                played = recipe.rollout.play(agent, question, n, temperature, **until)
            else:
                played = linear_rollout(agent, question, n, temperature, **until)
        except PolicyUnavailableError:
            if not held.hosted.alive:
                self._engine.discard(held)
            raise
        if isinstance(played, Tree):
            return _Played(self._score_tree(recipe, agent.tools, request, played), played.lost)
        return score(played)

    def _score_tree(
        self, recipe: Recipe, tools: GraphTools, request: RolloutRequest, tree: Tree
    ) -> RewardedTree:
        reward, instruments = recipe.reward_in(request.stage), Instruments(tools, recipe.judge.build())
        if not isinstance(reward, TreeReward):
            raise TypeError(f"reward {recipe.reward.name} does not score the steps of a tree")
        return reward.score_tree(request.request_id, request.question, tree, instruments)

    def _score(
        self, recipe: Recipe, tools: GraphTools, request: RolloutRequest, trajectories: Sequence[Trajectory]
    ) -> tuple[RewardedTrajectory, ...]:
        """Rewards of a group; an episode without a verdict is left out, because it is not a wrong answer.

        Raises:
            JudgeUnavailableError: there was no verdict on any.
        """
        reward, instruments = recipe.reward_in(request.stage), Instruments(tools, recipe.judge.build())
        members: list[RewardedTrajectory] = []
        unjudged: JudgeUnavailableError | None = None
        for trajectory in trajectories:
            try:
                members.append(reward.score(request.question, trajectory, instruments))
            except JudgeUnavailableError as error:
                unjudged = error
        if unjudged is not None:
            logger.warning("episodes without a verdict are left out", extra={"detail": str(unjudged)})
            if not members:
                raise unjudged
        return tuple(members)

    def _require_graph_version(self, request: RolloutRequest) -> None:
        if request.kg_version is None:
            return
        found = self._versions.of(request.kg)
        if found != request.kg_version:
            raise _Refused(
                FailureReason.GRAPH_CHANGED,
                f"kg_server holds version {found} of {request.kg}, but the run started with "
                f"{request.kg_version}",
            )

    def _retrying(self, attempt: Callable[[], T]) -> T:
        """Try again while kg_server does not answer, for a bounded time."""
        return retry(
            attempt,
            on=GraphUnavailableError,
            patience_s=self._patience.graph_s,
            first_pause_s=0.2,
            longest_pause_s=3.0,
        )

    def _reply(
        self,
        request: RolloutRequest,
        timings: Timings,
        played: _Played | None = None,
        failure: RolloutFailure | None = None,
        sampled_tokens: int = 0,
    ) -> RolloutReply:
        rollout = None if played is None else played.rollout
        return RolloutReply(
            run=request.run,
            request_id=request.request_id,
            purpose=request.purpose,
            group=rollout if isinstance(rollout, Group) else None,
            tree=rollout if isinstance(rollout, RewardedTree) else None,
            failure=failure,
            worker=self.worker,
            timings=timings,
            sampled_tokens=sampled_tokens,
            lost=0 if played is None else played.lost,
        )
