"""Converts rollouts to texts and rewards for people to read; `kbqa.runs.traces` keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from kbqa.advantages import Credit
from kbqa.curves.episodes import total_reward
from kbqa.evaluation.evaluation import cluster_of
from kbqa.policies.base import Codec
from kbqa.runs.judged import JudgedQuestion
from kbqa.runs.traces import TracedAction, TracedEpisode, TracedGroup, TracedSummary, TracedTurn
from kbqa.trajectory import ExecutedAction, Group, Question, Turn
from kbqa.tree import RewardedTree, ScoredRollout, Tree

_MOST_CHARACTERS = 4000  # of a text
_MOST_LABELS = 20  # of what an action found


def trace(step: int, outcome: str, rollout: ScoredRollout, advantage: Credit, codec: Codec) -> TracedGroup:
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


def judged_question(question: Question, group: Group, *, with_turns: bool) -> JudgedQuestion:
    """The only episode of a group as text.

    Args:
        question: as the data set has it, since requests leave the gold path out.
        with_turns: without them, what was asked and answered remains.
    """
    [member] = group.members
    trajectory, rewards = member.trajectory, member.turn_rewards
    turns = zip(trajectory.turns, rewards, strict=True) if with_turns else ()
    return JudgedQuestion(
        id=question.id,
        question=_cut(question.text),
        cluster=_cut(cluster_of(question)),
        hops=question.hops,
        gold=[_cut(answer) for answer in question.answers],
        answers=[_cut(answer) for answer in trajectory.answers],
        status=trajectory.status.value,
        components=member.components,
        turns=[_turn(at - 1 if at else None, turn, reward, None) for at, (turn, reward) in enumerate(turns)],
    )


def _of_group(group: Group, advantage: Credit) -> tuple[list[TracedTurn], list[TracedEpisode]]:
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


def _of_tree(rewarded: RewardedTree, advantage: Credit) -> tuple[list[TracedTurn], list[TracedEpisode]]:
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
    """A text of limited length that UTF-8 can encode: a policy may emit half of a surrogate pair."""
    cut = text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()
