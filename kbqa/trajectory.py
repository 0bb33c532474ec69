"""Records of what an agent did, as exact token ids: questions, turns, trajectories, groups.

A trajectory holds the ids that the policy read and wrote; text is never tokenised
again. A trajectory that asks twice and then answers is laid out as

    token_ids:  prompt | turn 0 | observation | turn 1 | observation | turn 2
    mask:       0 0 0  | 1 1 1  | 0 0 0 0     | 1 1 1  | 0 0 0 0     | 1 1

A turn is a half-open range of positions, its prompt is everything before it,
and each turn's prompt extends the previous one token by token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from kbqa.packing import PackedFloats


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text on its way to a tokenizer.

    Attributes:
        text: the characters.
        trusted: whether tags in the text act as tags. Text from a user or a graph is
            not trusted: a `</answer>` in it is encoded as plain characters.
    """

    text: str
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a gold program: follow `relation` forwards, or backwards if `inverse`."""

    relation: str
    inverse: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answers.

    Attributes:
        answers: gold answers, as labels or ids.
        variants: further sets of gold answers, each as right as `answers` (WebQSP's other parses).
        names: gold answers of any of these sets, each with its other names: (answer, name, …). The names of
            an id are labels; those of a label are the ids that bear it.
        topic_entities: entities that the question names, as ids.
        graph: id of a per-question subgraph, if there is one.
        path: gold relation path from the topic entity, if the data set states one.
        form: gold S-expression, if the data set states one.
        sparql: gold query, if the data set states one.
        operation: operation of the gold program, such as path, count or superlative; empty if unknown.
        level: level of generalisation from the training questions (GrailQA): i.i.d., compositional,
            zero-shot.
        part: data set that the question comes from, in a mixture of several; otherwise empty.
        wording: where the text of a made question comes from: "template", "lexicon" if the template says a
            relation by other words than the graph does, "review" for a person's, or "model:NAME"; empty if
            unknown.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    topic_entities: tuple[str, ...]
    kg: str
    graph: str | None = None
    path: tuple[Hop, ...] = ()
    form: str = ""
    sparql: str = ""
    operation: str = ""
    level: str = ""
    part: str = ""
    variants: tuple[tuple[str, ...], ...] = ()
    names: tuple[tuple[str, ...], ...] = ()
    wording: str = ""

    @property
    def golds(self) -> tuple[tuple[str, ...], ...]:
        """All sets of gold answers; an answer that equals one of them is right."""
        return (self.answers, *self.variants)

    @property
    def is_made(self) -> bool:
        """Whether its text was made from a graph, and no person has reworded it."""
        return self.wording not in ("", "review")

    @property
    def hops(self) -> int:
        """Length of the gold path; 0 if it is unknown."""
        return len(self.path)


class Status(StrEnum):
    """How a turn or an episode ended. The reward sees it; nothing is raised."""

    OK = "ok"
    ANSWERED = "answered"
    UNPARSABLE = "unparsable"
    ACTION_ERROR = "action_error"
    OUT_OF_TURNS = "out_of_turns"
    OUT_OF_TOKENS = "out_of_tokens"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    """The engine failed to complete a turn. That says nothing about the policy, so it is not rewarded."""


@dataclass(frozen=True, slots=True)
class GatedRelation:
    """RRCG's decision on a relation that the policy wrote (KBQA-R1, section IV-A3).

    Attributes:
        relation: id of the most similar relation.
        score: its similarity; 1 means the same.
        tier: `high` and `medium` were executed, `low` was rejected.
    """

    relation: str
    score: float
    tier: str


DECLINED = "none of these"
"""Thought of a turn in which a policy says that no option leads to the answer."""


def declines(thought: str) -> bool:
    """Whether a turn's thought says that no option leads to the answer, and perhaps why."""
    return thought == DECLINED or thought.startswith(f"{DECLINED}: ")


@dataclass(frozen=True, slots=True)
class ExecutedAction:
    """A retrieval action of a turn and its result.

    Attributes:
        name: the action's name as the policy wrote it.
        arguments: arguments by name.
        code: error code, or None if the action succeeded.
        kind: kind of the error, likewise; finer than the code.
        items: ids retrieved, in the order shown.
        labels: labels of the items, in the same order.
        gated: RRCG's decisions on the relations in the action.
        details: further output of the action (`kbqa.kg.actions.Success.details`), from which evidence is
            made. Messages do not contain it, so it is empty in an action that was received in a message.
    """

    name: str
    arguments: dict[str, str]
    code: str | None = None
    items: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    kind: str | None = None
    gated: tuple[GatedRelation, ...] = ()
    # Not serialised: a trainer does not need details, and those of a path are longer than all the rest.
    details: Annotated[Mapping[str, Any], Field(exclude=True)] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def succeeded(self) -> bool:
        return self.code is None and bool(self.items)


@dataclass(frozen=True, slots=True)
class Turn:
    """One completion of the policy, and the observation that follows it.

    Attributes:
        start, end: half-open range of the turn in the trajectory's `token_ids`.
        logprobs: behaviour log-probability of each token in that range.
        text: the completion, decoded.
        thought: the text between the thinking tags.
        well_formed: whether the turn follows the protocol's format rules.
        observation: text that the environment appended, "" after an answer.
        policy_version: full id of the version that wrote it.
    """

    start: int
    end: int
    logprobs: PackedFloats
    text: str
    status: Status
    thought: str = ""
    well_formed: bool = False
    actions: tuple[ExecutedAction, ...] = ()
    observation: str = ""
    policy_version: str = ""
    elapsed_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Search:
    """The episodes that a beam search compared with the one that it took.

    Attributes:
        share: the weight of those with the same answers, divided by that of all, in [0, 1]; an episode weighs
            its probability, times e^rating if the policy has a re-ranker.
        presence: the least probability, over the turns of the one that was taken, of not declining all
            options; 1 if it could not decline.
        turns, prompt_tokens, actions: what the policy wrote and read for the others, and the graph executed.
    """

    share: float
    presence: float
    turns: int
    prompt_tokens: int
    actions: int


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A whole episode.

    Attributes:
        token_ids: every token read or written, length T.
        turns: in order; their ranges do not overlap.
        answers: predicted answers as labels, unique, in the order given.
        answer_ids: for each answer, the ids of the retrieved entities with that label.
        search: None if it was not found by a beam search.
    """

    token_ids: tuple[int, ...]
    turns: tuple[Turn, ...]
    status: Status
    answers: tuple[str, ...] = ()
    answer_ids: tuple[tuple[str, ...], ...] = ()
    # Not serialised: no policy is trained on what a search found.
    search: Annotated[Search | None, Field(exclude=True)] = None

    @property
    def actions(self) -> Iterator[ExecutedAction]:
        return (action for turn in self.turns for action in turn.actions)

    @property
    def policy_versions(self) -> tuple[str, ...]:
        """The versions that wrote it, unique, oldest first."""
        return tuple(sorted({turn.policy_version for turn in self.turns}))

    @property
    def generated_tokens(self) -> int:
        return sum(turn.end - turn.start for turn in self.turns)


@dataclass(frozen=True, slots=True)
class RewardedTrajectory:
    """A trajectory with its rewards.

    Attributes:
        turn_rewards: r_t, one per turn.
        outcome: the trajectory's global reward.
        components: named parts of the reward, for metrics (`f1` is always there).
    """

    trajectory: Trajectory
    turn_rewards: tuple[float, ...]
    outcome: float
    components: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """The N trajectories of one question; advantages need them together."""

    id: str
    question: Question
    members: tuple[RewardedTrajectory, ...]

    @property
    def policy_versions(self) -> frozenset[str]:
        return frozenset(v for member in self.members for v in member.trajectory.policy_versions)


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A trajectory as the objective reads it. All sequences have length T.

    Attributes:
        token_ids: prompt, turns and observations.
        mask: True exactly at policy tokens that carry an advantage.
        logprobs: behaviour log-probabilities, 0 where the mask is False.
        advantages: 0 where the mask is False.
    """

    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]


def training_sample(trajectory: Trajectory, turn_advantages: Sequence[float]) -> TrainingSample:
    """Spread one advantage per turn over the tokens of that turn.

    Raises:
        ValueError: the number of advantages is not the number of turns, or that of a turn's
            log-probabilities is not that of its tokens.
    """
    if len(turn_advantages) != len(trajectory.turns):
        raise ValueError(f"{len(turn_advantages)} advantages for {len(trajectory.turns)} turns")
    length = len(trajectory.token_ids)
    mask, logprobs, advantages = [False] * length, [0.0] * length, [0.0] * length
    for turn, advantage in zip(trajectory.turns, turn_advantages, strict=True):
        place, tokens = slice(turn.start, turn.end), turn.end - turn.start
        if len(turn.logprobs) != tokens:
            raise ValueError(f"{len(turn.logprobs)} log-probabilities for {tokens} tokens")
        mask[place], logprobs[place], advantages[place] = [True] * tokens, turn.logprobs, [advantage] * tokens
    return TrainingSample(trajectory.token_ids, tuple(mask), tuple(logprobs), tuple(advantages))
