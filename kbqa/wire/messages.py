"""Rollout requests and their replies.

A request is one question. Its reply is the whole group of trajectories or the whole tree, because
advantages are computed over all of it, or the reason why there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kbqa.trajectory import Group, Question, RewardedTrajectory, Turn
from kbqa.tree import RewardedTree, ScoredRollout

SCHEMA_VERSION: Literal[1] = 1

RUN_PATTERN = r"^[a-z0-9][a-z0-9-]{0,63}$"
_REQUEST_PATTERN = r"^[a-z0-9][a-z0-9-]{0,127}$"

_MOST_TOKENS = 2**24  # the largest vocabularies have 2**18

# Both become names of files and directories, hence neither dots nor slashes.
RunId = Annotated[str, Field(pattern=RUN_PATTERN)]
RequestId = Annotated[str, Field(pattern=_REQUEST_PATTERN)]

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


class Purpose(StrEnum):
    TRAIN = "train"
    EVALUATE = "evaluate"


class FailureReason(StrEnum):
    """Why a request failed."""

    NO_POLICY = "no_policy"
    """No version with a number of at least `min_policy_version` was published in time."""
    POLICY_UNAVAILABLE = "policy_unavailable"
    """The engine failed, or the policy store does not answer."""
    VERSION_REFUSED = "version_refused"
    """The worker cannot load the version: damaged files, no base model, or other log-probabilities."""
    RECIPE_MISMATCH = "recipe_mismatch"
    """The version was made with another recipe than the request's."""
    GRAPH_NOT_FOUND = "graph_not_found"
    GRAPH_UNAVAILABLE = "graph_unavailable"
    GRAPH_CHANGED = "graph_changed"
    """kg_server holds another version of the graph than the request's."""
    JUDGE_UNAVAILABLE = "judge_unavailable"
    """No episode of the group got a verdict."""
    CLOCK_OFF = "clock_off"
    """The worker's clock is ahead, so it cannot tell whether the request is still wanted."""
    INTERNAL = "internal"
    """A fault of the worker; its log has the details."""


class WireMessage(BaseModel):
    """Base of all messages; an unknown field is an error, and so is NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    schema_version: Literal[1] = SCHEMA_VERSION


class RolloutRequest(WireMessage):
    """Roll out one question.

    Attributes:
        request_id: unique within the run; the same when it is sent again.
        question: with its gold answers, which the reward needs.
        kg_version: the required version of the graph; None accepts any.
        recipe_digest: digest of the recipe that the policy version must name.
        min_policy_version: the worker uses the newest version of the run, whose number must
            be at least this.
        n: trajectories of the group, or branches at each state of a tree.
        temperature: 0 is greedy.
        stage: stage of the recipe's curriculum whose reward applies; None means the recipe's own reward.
        sent_at: seconds since the epoch.
        deadline_s: seconds after `sent_at` at which the sender gives up on this message and sends
            another under the same id; a worker need not begin it afterwards.
    """

    run: RunId
    request_id: RequestId
    purpose: Purpose
    question: Question
    kg_version: str | None = None
    recipe_digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    min_policy_version: Count
    n: Annotated[int, Field(ge=1, le=1024)]
    temperature: Annotated[float, Field(ge=0, le=2)]
    stage: Count | None = None
    seed: Count
    sent_at: Seconds
    deadline_s: Annotated[float, Field(gt=0)]

    @property
    def kg(self) -> str:
        return self.question.kg

    @property
    def expires_at(self) -> float:
        """Seconds since the epoch."""
        return self.sent_at + self.deadline_s


class RolloutFailure(BaseModel):
    """Why there is no group; `detail` is for people."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    reason: FailureReason
    detail: str


class Timings(BaseModel):
    """Where a request's time went.

    Attributes:
        queued_s: from `sent_at` until a worker took it.
        policy_s: until the engine held a version that is new enough.
        rollout_s: playing and scoring the episodes.
        engine_s, graph_s: of that, waiting for the engine and for the graph.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    queued_s: Seconds = 0.0
    policy_s: Seconds = 0.0
    rollout_s: Seconds = 0.0
    engine_s: Seconds = 0.0
    graph_s: Seconds = 0.0


class RolloutReply(WireMessage):
    """The result of a request: exactly one of `group`, `tree` and `failure`.

    Attributes:
        group, tree: its id is the request's.
        worker: name of the worker, for people.
        sampled_tokens: tokens that the policy wrote for it, pruned branches included.
        lost: episodes, or branches of a tree, that are left out because the engine failed to complete them.
    """

    run: RunId
    request_id: RequestId
    purpose: Purpose
    group: Group | None = None
    tree: RewardedTree | None = None
    failure: RolloutFailure | None = None
    worker: str
    timings: Timings = Timings()
    sampled_tokens: Count = 0
    lost: Count = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if [self.group, self.tree, self.failure].count(None) != 2:
            raise ValueError("a reply must have exactly one of group, tree and failure")
        if self.rollout is not None and self.rollout.id != self.request_id:
            name = "group" if self.tree is None else "tree"
            raise ValueError(f"{name}.id is {self.rollout.id!r}, request_id is {self.request_id!r}")
        if self.tree is not None and (fault := _tree_fault(self.tree)):
            raise ValueError(f"tree: {fault}")
        if self.group is not None:
            if not self.group.members:
                raise ValueError("group.members is empty")
            for index, member in enumerate(self.group.members):
                if fault := _fault(member):
                    raise ValueError(f"group.members.{index}: {fault}")
        return self

    @property
    def rollout(self) -> ScoredRollout | None:
        """The group or the tree."""
        return self.group if self.tree is None else self.tree

    def refused(self, fault: str) -> Self:
        """The same reply with a failure in place of a rollout that the trainer cannot learn from.

        Args:
            fault: what is wrong with the rollout.
        """
        failure = RolloutFailure(
            reason=FailureReason.INTERNAL,
            detail=f"{fault}: check that worker {self.worker} has the trainer's policy store and release",
        )
        return self.model_copy(update={"group": None, "tree": None, "failure": failure})


class DeadLetter(WireMessage):
    """A message that nobody could process, and the reason.

    Attributes:
        queue: the queue that it was taken from.
        task: the task that it was sent to; None if it named none.
        attempts: how often it was taken from the queue.
        at: ISO 8601, UTC.
        consumer: name of the consumer that put it aside, for people.
        characters: length of the whole message; `message` may be cut.
    """

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    queue: str
    task: str | None
    reason: str
    attempts: Count
    at: str
    consumer: str
    characters: Count
    message: str

    @property
    def whole(self) -> bool:
        """Whether it can be sent again."""
        return self.task is not None and len(self.message) == self.characters


def _fault(member: RewardedTrajectory) -> str | None:
    """The inconsistency in a trajectory that would make training fail later; None if there is none."""
    trajectory = member.trajectory
    if fault := _token_fault(trajectory.token_ids):
        return f"token_ids{fault}"
    if len(member.turn_rewards) != len(trajectory.turns):
        return f"turn_rewards: {len(member.turn_rewards)} for {len(trajectory.turns)} turns"
    for index, turn in enumerate(trajectory.turns):
        if fault := _turn_fault(turn, len(trajectory.token_ids)):
            return f"turns.{index}{fault}"
    if any(right.start < left.end for left, right in pairwise(trajectory.turns)):
        return "turns overlap"
    return None


def _tree_fault(rewarded: RewardedTree) -> str | None:
    """As `_fault`: every step begins where its parent's tokens end."""
    tree, count = rewarded.tree, len(rewarded.tree.steps)
    if len(rewarded.rewards) != count or len(rewarded.components) != count:
        return f"{len(rewarded.rewards)} rewards and {len(rewarded.components)} components for {count} steps"
    if fault := _token_fault(tree.prompt_ids):
        return f"prompt_ids{fault}"
    ends: list[int] = []
    for index, step in enumerate(tree.steps):
        if fault := _token_fault(step.token_ids):
            return f"steps.{index}.token_ids{fault}"
        if step.parent is not None and not 0 <= step.parent < index:
            return f"steps.{index}.parent: {step.parent} is no earlier step"
        start = len(tree.prompt_ids) if step.parent is None else ends[step.parent]
        ends.append(start + len(step.token_ids))
        if step.turn.start != start:
            return f"steps.{index}.turn: begins at {step.turn.start}, its state ends at {start}"
        if fault := _turn_fault(step.turn, ends[-1]):
            return f"steps.{index}.turn{fault}"
    return None


def _token_fault(ids: Sequence[int]) -> str | None:
    if not ids or (min(ids) >= 0 and max(ids) < _MOST_TOKENS):
        return None
    wrong = next(index for index, token in enumerate(ids) if not 0 <= token < _MOST_TOKENS)
    return f".{wrong}: {ids[wrong]} is no token"


def _turn_fault(turn: Turn, length: int) -> str | None:
    if not 0 < turn.start <= turn.end <= length:
        return f": tokens {turn.start} to {turn.end} of {length}"
    if len(turn.logprobs) != turn.end - turn.start:
        return f".logprobs: {len(turn.logprobs)} for {turn.end - turn.start} tokens"
    return None
