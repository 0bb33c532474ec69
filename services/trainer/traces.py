"""What rollouts said and earned, as text, for people to look at.

    runs/<run>/groups/00000012.jsonl.gz     a step: its header, then a group a line

A group is written the same way whether it is linear or a tree: its turns, each with the turn before
it, and the episodes that end in some of them. Sizes are bounded: long texts are cut, a step keeps so
many bytes, and a run so many steps, the newest ones and older ones ever farther apart.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from kbqa.advantages import Advantage
from kbqa.curves.episodes import total_reward
from kbqa.errors import RunError
from kbqa.policies.base import Codec
from kbqa.policy_store.durable import write_file
from kbqa.trajectory import ExecutedAction, Group, RewardedTree, ScoredRollout, Tree, Turn

_MOST_CHARACTERS = 4000  # of a text
_MOST_LABELS = 20  # of what an action found
_MOST_BYTES = 8_000_000  # of a step, before it is compressed
_SUFFIX = ".jsonl.gz"
_NAME = re.compile(r"^(\d{8,})\.jsonl\.gz$")

T = TypeVar("T")


class Traced(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TracedAction(Traced):
    """Attributes:
    found: number of items; `labels` are the first ones.
    """

    name: str
    arguments: dict[str, str]
    code: str | None
    kind: str | None
    found: int
    labels: list[str]


class TracedTurn(Traced):
    """A turn, or a step of a tree.

    Attributes:
        parent: index of the turn before it; None at the question.
        text: what the policy wrote, with its tags.
        logprob: mean log-probability of its tokens when it was written; None if it has none.
        advantage: None where it taught nothing.
    """

    parent: int | None
    text: str
    thought: str
    status: str
    well_formed: bool
    actions: list[TracedAction]
    observation: str
    tokens: int
    logprob: float | None
    reward: float
    advantage: float | None
    version: str
    elapsed_ms: float


class TracedEpisode(Traced):
    """Attributes:
    last: index of its last turn; None if it has no turn.
    status: how it ended; None where a cap or deadline cut a tree.
    reward: of all its turns, and its outcome.
    """

    last: int | None
    status: str | None
    answers: list[str]
    reward: float
    outcome: float
    components: dict[str, float]


class TracedSummary(Traced):
    """A group in a list.

    Attributes:
        outcome: what became of it; see `Outcome`.
        statuses: number of episodes by how they ended.
        reward, f1: means over its episodes; `best_f1` is that of the best one.
        kept: whether its turns were kept, too.
    """

    id: str
    step: int
    kind: Literal["linear", "tree"]
    question_id: str
    question: str
    outcome: str
    episodes: int
    turns: int
    statuses: dict[str, int]
    reward: float
    f1: float
    best_f1: float
    kept: bool = True


class TracedGroup(Traced):
    """A group with everything that was said.

    Attributes:
        prompt: what the policy read before its first turn.
        sampled: branches of a tree before pruning.
    """

    summary: TracedSummary
    gold: list[str]
    topics: list[str]
    kg: str
    prompt: str
    sampled: int | None
    turns: list[TracedTurn]
    episodes: list[TracedEpisode]


class TracedStep(Traced):
    """The header of a step."""

    step: int
    version: str
    groups: list[TracedSummary]


def trace(step: int, outcome: str, rollout: ScoredRollout, advantage: Advantage, codec: Codec) -> TracedGroup:
    """A group or tree as text.

    Args:
        outcome: what became of it.
        advantage: how its turns were credited.
    """
    if isinstance(rollout, RewardedTree):
        tree: Tree | None = rollout.tree
        turns, episodes = _of_tree(rollout, advantage)
    else:
        tree = None
        turns, episodes = _of_group(rollout, advantage)
    ended = [episode for episode in episodes if episode.status is not None]
    f1s = [episode.components.get("f1", 0.0) for episode in ended] or [0.0]
    question = rollout.question
    return TracedGroup(
        summary=TracedSummary(
            id=rollout.id,
            step=step,
            kind="linear" if tree is None else "tree",
            question_id=question.id,
            question=_cut(question.text),
            outcome=outcome,
            episodes=len(episodes),
            turns=len(turns),
            statuses=dict(Counter(episode.status or "cut_off" for episode in episodes)),
            reward=fmean(episode.reward for episode in ended) if ended else 0.0,
            f1=fmean(f1s),
            best_f1=max(f1s),
        ),
        gold=[_cut(answer) for answer in question.answers],
        topics=list(question.topic_entities),
        kg=question.kg,
        prompt=_cut(codec.decode(_prompt_ids(rollout))),
        sampled=None if tree is None else tree.sampled,
        turns=turns,
        episodes=episodes,
    )


class Traces:
    """The traced steps of a run, in a directory.

    Args:
        most: steps that a writer keeps, a third of them the newest.
    """

    def __init__(self, directory: Path, most: int) -> None:
        self._directory, self._most = directory, most

    def write(self, step: int, version: str, groups: Sequence[TracedGroup]) -> None:
        """Keep the groups of a step, and let go of steps that are too many."""
        if not self._most:
            return
        self._directory.mkdir(exist_ok=True)
        lines, room = [], _MOST_BYTES
        for group in groups:
            line = group.model_dump_json().encode()
            lines.append(line if len(line) <= room else b"")
            room -= len(lines[-1])
        summaries = [
            group.summary if line else group.summary.model_copy(update={"kept": False})
            for group, line in zip(groups, lines, strict=True)
        ]
        header = TracedStep(step=step, version=version, groups=summaries).model_dump_json().encode()
        # Fast and without a time stamp: what is slow here waits for nobody's eyes.
        data = gzip.compress(b"\n".join([header, *lines]), compresslevel=1, mtime=0)
        write_file(self._path(step), data)
        for old in sorted(set(self.steps()) - kept_steps(self.steps(), self._most)):
            self._path(old).unlink(missing_ok=True)

    def forget_after(self, step: int) -> None:
        """Remove the steps after `step`, which a restore has undone."""
        for later in self.steps():
            if later > step:
                self._path(later).unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Steps that are kept, oldest first."""
        if not self._directory.is_dir():
            return []
        names = (_NAME.match(path.name) for path in self._directory.iterdir())
        return sorted(int(name[1]) for name in names if name is not None)

    def step(self, step: int) -> TracedStep | None:
        """The header of a step; None if it is not kept.

        Raises:
            RunError: its file is damaged.
        """
        return self._read(step, lambda lines: TracedStep.model_validate_json(lines.readline()))

    def group(self, step: int, id_: str) -> TracedGroup | None:
        """A group of a step; None if it is not kept.

        Raises:
            RunError: the file of the step is damaged.
        """

        def find(lines: gzip.GzipFile) -> TracedGroup | None:
            header = TracedStep.model_validate_json(lines.readline())
            for summary in header.groups:
                line = lines.readline()
                if summary.id == id_ and summary.kept:
                    return TracedGroup.model_validate_json(line)
            return None

        return self._read(step, find)

    def _read(self, step: int, take: Callable[[gzip.GzipFile], T]) -> T | None:
        path = self._path(step)
        try:
            with gzip.open(path) as lines:
                return take(lines)
        except FileNotFoundError:  # never there, or let go of meanwhile
            return None
        except (OSError, EOFError, ValidationError) as error:
            raise RunError(f"{path} is damaged; remove it: {error}") from error

    def _path(self, step: int) -> Path:
        return self._directory / f"{step:08d}{_SUFFIX}"


def kept_steps(steps: Sequence[int], most: int) -> set[int]:
    """Which of `steps`, in order, to keep: the newest third of `most`, of older ones every 2^k-th."""
    newest = max(most // 3, 1)
    older, room = steps[:-newest], most - newest
    stride = 1
    while sum(step % stride == 0 for step in older) > room:
        stride *= 2
    return {*steps[-newest:], *(step for step in older if step % stride == 0)}


def _of_group(group: Group, advantage: Advantage) -> tuple[list[TracedTurn], list[TracedEpisode]]:
    turns: list[TracedTurn] = []
    episodes: list[TracedEpisode] = []
    for member, row in zip(group.members, advantage.of_turns(group), strict=True):
        trajectory, parent = member.trajectory, None
        for index, (turn, reward) in enumerate(zip(trajectory.turns, member.turn_rewards, strict=True)):
            turns.append(_turn(parent, turn, reward, row[index] if row else None))
            parent = len(turns) - 1
        episodes.append(
            TracedEpisode(
                last=parent,
                status=trajectory.status.value,
                answers=[_cut(answer) for answer in trajectory.answers],
                reward=total_reward(member),
                outcome=member.outcome,
                components=member.components,
            )
        )
    return turns, episodes


def _of_tree(rewarded: RewardedTree, advantage: Advantage) -> tuple[list[TracedTurn], list[TracedEpisode]]:
    tree, advantages = rewarded.tree, advantage.of_steps(rewarded)
    turns = [
        _turn(step.parent, step.turn, reward, advantages.get(index))
        for index, (step, reward) in enumerate(zip(tree.steps, rewarded.rewards, strict=True))
    ]
    episodes = [
        TracedEpisode(
            last=leaf,
            status=None if (status := tree.steps[leaf].status) is None else status.value,
            answers=[_cut(answer) for answer in tree.steps[leaf].answers],
            reward=sum(rewarded.rewards[at] for at in tree.path(leaf)),
            outcome=0.0,
            components=rewarded.components[leaf],
        )
        for leaf in tree.leaves
    ]
    return turns, episodes


def _turn(parent: int | None, turn: Turn, reward: float, advantage: float | None) -> TracedTurn:
    return TracedTurn(
        parent=parent,
        text=_cut(turn.text),
        thought=_cut(turn.thought),
        status=turn.status.value,
        well_formed=turn.well_formed,
        actions=[_action(action) for action in turn.actions],
        observation=_cut(turn.observation),
        tokens=turn.end - turn.start,
        logprob=fmean(turn.logprobs) if turn.logprobs else None,
        reward=reward,
        advantage=advantage,
        version=turn.policy_version,
        elapsed_ms=round(turn.elapsed_ms, 1),
    )


def _action(action: ExecutedAction) -> TracedAction:
    return TracedAction(
        name=_cut(action.name),
        arguments={name: _cut(value) for name, value in action.arguments.items()},
        code=action.code,
        kind=action.kind,
        found=len(action.items),
        labels=[_cut(label, 200) for label in action.labels[:_MOST_LABELS]],
    )


def _prompt_ids(rollout: ScoredRollout) -> Sequence[int]:
    if isinstance(rollout, RewardedTree):
        return rollout.tree.prompt_ids
    trajectory = rollout.members[0].trajectory
    return trajectory.token_ids[: trajectory.turns[0].start] if trajectory.turns else trajectory.token_ids


def _cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    """A text of bounded length that UTF-8 can carry: a policy may emit half of a surrogate pair."""
    cut = text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
    return cut.encode("utf-8", "replace").decode()
