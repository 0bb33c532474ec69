"""One run: GRPO from a cold start, in one process on one core.

No queue and no server stands between; everything else is what services train with.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

from benchmarks.learning.beginning import Beginning
from benchmarks.learning.design import Design, Variant
from benchmarks.learning.scene import ROWS, Scene
from kbqa.policies.in_process import load_model
from kbqa.recipes.curriculum import plain_course
from kbqa.recipes.play import TreeSection
from kbqa.rewards import Instruments, TreeReward
from kbqa.rollouts import Agent, linear_rollout, tree_rollout
from kbqa.rollouts.many import many_rollouts
from kbqa.runs.student import Student
from kbqa.training.generators import seed_generators
from kbqa.training.learner import Learner
from kbqa.trajectory import Group, Question, RewardedTree, ScoredRollout


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        f1: of each test question, in their order.
        hops: likewise.
        start: mean F1 before reinforcement learning.
        steps, sampled_tokens: of reinforcement learning.
        reward: mean of the training groups, by quarter of the steps.
        seconds: of processor time, so that what else the machine does shortens no run.
    """

    f1: tuple[float, ...]
    hops: tuple[int, ...]
    start: float
    steps: int
    sampled_tokens: int
    reward: tuple[float, ...]
    demonstrations: int
    seconds: float


def run(design: Design, variant: Variant, seed: int, shelf: Path) -> Outcome:
    """Train a variant under a seed, and ask it all test questions.

    Args:
        shelf: where bases and cold starts are kept.
    """
    torch.set_num_threads(1)
    with Scene.open(variant, seed) as scene:
        start, shown = Beginning(scene, shelf).cold_started(variant.cold_start)
        return Trial(design, variant, scene).run(start, shown)


class Trial:
    """Reinforcement learning of a variant."""

    def __init__(self, design: Design, variant: Variant, scene: Scene) -> None:
        self._design, self._variant, self._scene = design, variant, scene

    def run(self, start: Path, demonstrations: int) -> Outcome:
        """Train the policy in the directory `start`, which imitated so many demonstrations."""
        began = time.process_time()
        student = Student.load(start)
        recipe, seed = self._scene.recipe, self._scene.seed
        seed_generators(seed)
        learner = Learner(
            student.model, recipe.optimisation.build(recipe.rollout), lambda: load_model(start), seed
        )
        rate, advantage = recipe.optimisation.rate(), recipe.advantage.build()
        draw = plain_course if recipe.curriculum is None else recipe.curriculum.build
        course = draw(self._scene.questions.train, seed)
        wanted = self._variant.steps or self._design.steps
        rewards: list[float] = []
        position = step = 0
        with self._scene.agent(student) as (agent, policy):
            before = fmean(self._f1(agent))
            policy.tokens = 0
            limit = time.process_time() + self._design.max_seconds
            while time.process_time() < limit and not self._over(step, policy.tokens, wanted):
                batch = range(position, position + recipe.schedule.questions_per_step)
                groups = self._roll_out(agent, [(course[n], course.stage_at(n)) for n in batch], step)
                position = batch.stop
                rewards.append(fmean(value for group in groups for value in _rewards(group)))
                for group in learner.optimiser.param_groups:
                    group["lr"] = rate.at(step, wanted)
                samples = [advantage.samples(group) for group in groups]
                if any(samples):
                    learner.update(samples)
                    student.model.eval()
                    policy.forget()
                course.after_step({}, position)
                step += 1
            tokens = policy.tokens
            f1 = self._f1(agent)
        quarter = max(1, -(-len(rewards) // 4))
        return Outcome(
            f1=tuple(round(value, 4) for value in f1),
            hops=tuple(question.hops for question in self._scene.questions.test),
            start=round(before, 4),
            steps=step,
            sampled_tokens=tokens,
            reward=tuple(round(fmean(rewards[i : i + quarter]), 4) for i in range(0, len(rewards), quarter)),
            demonstrations=demonstrations,
            seconds=round(time.process_time() - began, 1),
        )

    def _over(self, step: int, tokens: int, wanted: int) -> bool:
        most = self._variant.tokens
        return tokens >= most if most is not None else step >= wanted

    def _roll_out(
        self, agent: Agent, asked: Sequence[tuple[Question, int]], step: int
    ) -> list[ScoredRollout]:
        """Groups or trees of a step's questions, scored; all are under way at a time, as in a worker."""
        recipe, seed = self._scene.recipe, (self._scene.seed * 100_003 + step) * 64
        instruments = Instruments(self._scene.tools, recipe.judge.build())

        def play(number: int) -> ScoredRollout:
            section, (question, stage) = recipe.rollout, asked[number]
            reward = recipe.reward_in(None if recipe.curriculum is None else stage)
            if isinstance(section, TreeSection):
                assert isinstance(reward, TreeReward)
                tree = tree_rollout(
                    agent, question, section.branching(), section.temperature, seed=seed + number
                )
                return reward.score_tree(str(number), question, tree, instruments)
            group = linear_rollout(agent, question, section.n, section.temperature, seed=seed + number)
            members = tuple(reward.score(question, one, instruments) for one in group)
            return Group(str(number), question, members)

        with ThreadPoolExecutor(len(asked), thread_name_prefix="group") as pool:
            return list(pool.map(play, range(len(asked))))

    def _f1(self, agent: Agent) -> list[float]:
        """Of each test question, greedily."""
        reward, instruments = (
            self._scene.recipe.reward.build(),
            Instruments(self._scene.tools, self._scene.recipe.judge.build()),
        )
        test = self._scene.questions.test
        scores = [0.0] * len(test)
        for place, trajectory in many_rollouts(agent, test, 0.0, width=ROWS):
            scores[place] = reward.score(test[place], trajectory, instruments).components["f1"]
        return scores


def _rewards(rollout: ScoredRollout) -> list[float]:
    """What each episode, or each step of a tree, earned."""
    if isinstance(rollout, RewardedTree):
        return list(rollout.rewards)
    return [sum(member.turn_rewards) + member.outcome for member in rollout.members]
