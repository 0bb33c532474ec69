"""One run: a base that copies, a cold start, and GRPO, in one process on one core.

No queue and no server stands between; everything else is what services train with. Bases and cold starts
that several runs have in common are made once and kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.learning.design import ColdStart, Design, Variant
from kbqa.cold_start.collecting import SamplingTeacher, Setting, attempt, choose
from kbqa.cold_start.demonstrations import Demonstration, demonstrate, play, recite
from kbqa.cold_start.imitation import Names, draw_examples
from kbqa.datasets import Splits, load_dataset
from kbqa.errors import DatasetError, RunError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.base import Completion, SamplingParams
from kbqa.policies.transformers import TransformersPolicy, load_model
from kbqa.recipes import Recipe
from kbqa.recipes.curriculum import plain_course
from kbqa.recipes.play import TreeSection
from kbqa.rewards import Instruments, TreeReward
from kbqa.rollouts import Agent, tree_rollout
from kbqa.rollouts.many import many_rollouts
from kbqa.training.copying import warm_up
from kbqa.training.generators import seed_generators
from kbqa.training.learner import Learner
from kbqa.training.sft import fine_tune
from kbqa.trajectory import Group, Question, RewardedTrajectory, RewardedTree, ScoredRollout
from services.trainer.student import Student

_ROWS = 64  # episodes under way
_TRIPLES, _TEXTS = 20_000, 2000  # of graph and questions, that a tokenizer learns from, as a trainer's does
_CANDIDATES = 8  # that a teacher tries of a question
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_COUNT = "demonstrations.json"
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        f1: of each test question, in their order.
        hops: likewise.
        start: mean F1 before reinforcement learning.
        steps, sampled_tokens: of reinforcement learning.
        reward: mean of the training groups, by quarter of the steps.
    """

    f1: tuple[float, ...]
    hops: tuple[int, ...]
    start: float
    steps: int
    sampled_tokens: int
    reward: tuple[float, ...]
    demonstrations: int
    seconds: float


class Trial:
    """A variant under a seed.

    Args:
        shelf: where bases and cold starts are kept.
    """

    def __init__(self, design: Design, variant: Variant, seed: int, shelf: Path) -> None:
        self._design, self._variant, self._seed, self._shelf = design, variant, seed, shelf
        self._recipe: Recipe = variant.resolved
        self._dataset = load_dataset(variant.dataset, seed)
        self._protocol = self._recipe.protocol.build()

    def run(self) -> Outcome:
        """Train and evaluate."""
        torch.set_num_threads(1)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kbqa-learning-") as home:
            catalog = GraphCatalog(Path(home))
            try:
                graph = Path(home) / "graph.tsv"
                graph.write_text("".join(line + "\n" for line in self._dataset.graph_lines()), "utf-8")
                catalog.load(self._dataset.kg, graph)
                self._tools = LocalGraphTools(catalog)
                return self._train(began)
            finally:
                catalog.close()

    @cached_property
    def _questions(self) -> Splits:
        return self._dataset.splits.only(self._recipe.questions.suit)

    def _train(self, began: float) -> Outcome:
        start, shown = self._cold_started(self._variant.cold_start)
        student = Student.load(start)
        recipe, seed = self._recipe, self._seed
        seed_generators(seed)
        learner = Learner(
            student.model, recipe.optimisation.build(recipe.rollout), lambda: load_model(start), seed
        )
        rate, advantage = recipe.optimisation.rate(), recipe.advantage.build()
        draw = plain_course if recipe.curriculum is None else recipe.curriculum.build
        course = draw(self._questions.train, seed)
        wanted = self._variant.steps or self._design.steps
        rewards: list[float] = []
        position = step = 0
        with self._agent(student) as (agent, policy):
            before = fmean(self._f1(agent))
            policy.tokens = 0
            limit = time.monotonic() + self._design.max_seconds
            while time.monotonic() < limit and not self._over(step, policy.tokens, wanted):
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
            hops=tuple(question.hops for question in self._questions.test),
            start=round(before, 4),
            steps=step,
            sampled_tokens=tokens,
            reward=tuple(round(fmean(rewards[i : i + quarter]), 4) for i in range(0, len(rewards), quarter)),
            demonstrations=shown,
            seconds=round(time.monotonic() - began, 1),
        )

    def _over(self, step: int, tokens: int, wanted: int) -> bool:
        most = self._variant.tokens
        return tokens >= most if most is not None else step >= wanted

    def _roll_out(
        self, agent: Agent, asked: Sequence[tuple[Question, int]], step: int
    ) -> list[ScoredRollout]:
        """Groups or trees of a step's questions, scored."""
        recipe, seed = self._recipe, self._seed * 100_003 + step
        section, instruments = recipe.rollout, Instruments(self._tools, recipe.judge.build())
        staged = recipe.curriculum is not None
        if isinstance(section, TreeSection):
            reward = recipe.reward.build()
            assert isinstance(reward, TreeReward)
            trees: list[ScoredRollout] = []
            for number, (question, _) in enumerate(asked):
                tree = tree_rollout(
                    agent, question, section.branching(), section.temperature, seed=seed * 64 + number
                )
                trees.append(reward.score_tree(str(number), question, tree, instruments))
            return trees
        questions = [question for question, _ in asked for _ in range(section.n)]
        found: list[list[RewardedTrajectory]] = [[] for _ in asked]
        for place, trajectory in many_rollouts(
            agent, questions, section.temperature, width=_ROWS, seed=seed * 64
        ):
            number = place // section.n
            question, stage = asked[number]
            reward = recipe.reward_in(stage if staged else None)
            found[number].append(reward.score(question, trajectory, instruments))
        return [
            Group(str(number), question, tuple(found[number])) for number, (question, _) in enumerate(asked)
        ]

    def _f1(self, agent: Agent) -> list[float]:
        """Of each test question, greedily."""
        reward, instruments = (
            self._recipe.reward.build(),
            Instruments(self._tools, self._recipe.judge.build()),
        )
        test = self._questions.test
        scores = [0.0] * len(test)
        for place, trajectory in many_rollouts(agent, test, 0.0, width=_ROWS):
            scores[place] = reward.score(test[place], trajectory, instruments).components["f1"]
        return scores

    @contextmanager
    def _agent(self, student: Student) -> Iterator[tuple[Agent, _Metered]]:
        """What plays with the weights that `student` has at the time."""
        rollout = self._recipe.rollout
        length = min(rollout.max_tokens, int(student.model.config.max_position_embeddings))
        budget = replace(rollout.budget(), max_tokens=length)
        student.model.eval()
        policy = _Metered(
            TransformersPolicy(student.model, student.codec, "trial", max_length=length, max_rows=_ROWS)
        )
        agent = Agent(policy, student.codec, self._protocol, self._tools, budget, rollout.truncation())
        try:
            yield agent, policy
        finally:
            policy.close()

    def _cold_started(self, cold: ColdStart) -> tuple[Path, int]:
        """A policy after its cold start, and the number of its demonstrations; made unless it is there."""
        base = self._base()
        section = self._recipe.cold_start
        if not cold.demonstrations or section is None:
            return base, 0
        path = self._shelf / f"cold-start-{self._key(cold.model_dump(), section.model_dump(mode='json'))}"
        with _alone(path):
            if not path.is_dir():
                demonstrations = self._demonstrations(cold)
                student = Student.load(base)
                rng, names = random.Random(f"cold_start/{self._seed}"), Names(student.words())
                most = self._recipe.rollout.max_observation_tokens
                fine_tune(
                    student.model,
                    lambda size: draw_examples(demonstrations, size, student.codec, names, rng, most),
                    section.build(len(demonstrations)),
                    lambda step, loss: False,
                )
                _keep(student, path, len(demonstrations))
        return path, int(json.loads((path / _COUNT).read_text(encoding="utf-8")))

    def _base(self) -> Path:
        """A policy that has learned to copy and nothing else; made unless it is there."""
        small = self._recipe.small_policy
        if small is None:
            raise RunError(f"recipe {self._recipe.name} has no small policy")
        path = self._shelf / f"base-{self._key(small.model_dump(mode='json'))}"
        with _alone(path):
            if not path.is_dir():
                student = Student.fresh(small.build(), self._texts(), self._protocol.tags, self._seed)
                specials = student.tokenizer.get_added_tokens_decoder()
                vocabulary = range(max(specials) + 1, student.tokenizer.get_vocab_size())
                warm_up(student.model, vocabulary, small.warm_up.build(), self._seed)
                _keep(student, path, 0)
        return path

    def _texts(self) -> Iterator[str]:
        yield from islice(self._dataset.graph_lines(), _TRIPLES)
        for demonstration in self._gold():
            for passage in demonstration.passages:
                yield from (segment.text for segment in passage.segments)
        yield from (question.text for question in self._questions.train[:_TEXTS])

    def _gold(self, count: int | None = None) -> list[Demonstration]:
        """The gold programs of so many questions of the cold start that can be played."""
        turns = self._recipe.rollout.max_turns
        played = (
            demonstrate(question, self._protocol, self._tools, turns)
            for question in self._questions.cold_start[:count]
        )
        return [demonstration for demonstration in played if demonstration is not None]

    def _demonstrations(self, cold: ColdStart) -> list[Demonstration]:
        if cold.taught:
            return self._sampled(cold)
        found = self._gold(cold.demonstrations if cold.kinds is None else None)
        if cold.kinds is not None:
            found = halving(found, cold.demonstrations, upsampled=cold.kinds == "upsampled")
        if not cold.thoughts:
            found = [self._replayed(one, _without_thoughts(_turns(one))) for one in found]
        if cold.merged:
            found = [self._replayed(one, merged_turns(_turns(one))) for one in found]
        if not found:
            raise DatasetError("no gold program of the data set can be played")
        return found

    def _replayed(self, demonstration: Demonstration, texts: Sequence[str]) -> Demonstration:
        """The episode that other turns make of a question."""
        turns = self._recipe.rollout.max_turns
        return play(demonstration.question, self._protocol, self._tools, recite(texts), turns).demonstration

    def _sampled(self, cold: ColdStart) -> list[Demonstration]:
        """What a weaker policy answers rightly by itself (outcome rejection sampling)."""
        weaker = cold.model_copy(update={"demonstrations": cold.taught, "taught": 0})
        teacher, _ = self._cold_started(weaker)
        setting = Setting(self._protocol, self._tools, self._recipe.rollout.max_turns)
        with self._agent(Student.load(teacher)) as (agent, _):
            sampling = SamplingTeacher(agent, _CANDIDATES, seed=self._seed)
            tried = [
                attempt(question, sampling, setting)
                for question in self._questions.cold_start[: cold.demonstrations]
            ]
        kept = choose(tried, random.Random(f"cold-start/{self._seed}"))
        if not kept:
            raise RunError("the teacher answers no question rightly")
        return kept

    def _key(self, *parts: object) -> str:
        """Of a policy that runs with the same parts may share."""
        recipe = self._recipe
        shared = {
            "dataset": self._variant.dataset,
            "seed": self._seed,
            "protocol": recipe.protocol.model_dump(mode="json"),
            "questions": recipe.questions.model_dump(mode="json"),
            "turns": recipe.rollout.max_turns,
            "parts": parts,
        }
        small = recipe.small_policy
        shared["small"] = None if small is None else small.model_dump(mode="json")
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:12]


class _Metered:
    """A policy that counts what it samples, pruned branches too."""

    def __init__(self, policy: TransformersPolicy) -> None:
        self._policy, self.tokens = policy, 0

    @property
    def max_length(self) -> int:
        return self._policy.max_length

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, **until: Any
    ) -> list[Completion]:
        completions = self._policy.generate(prompts, params, **until)
        self.tokens += sum(len(completion.token_ids) for completion in completions)
        return completions

    def forget(self) -> None:
        """What was computed with weights that have changed since."""
        self._policy.swap(self._policy.version, lambda model: None)

    def close(self) -> None:
        self._policy.close()


def merged_turns(texts: Sequence[str]) -> list[str]:
    """All actions of an episode in its first turn, and then its answer (KBQA-R1's dialect)."""
    thought = _THOUGHT.match(texts[0])
    actions = [action for text in texts for action in _ACTION.findall(text)]
    first = "\n".join(actions)
    return [f"{thought[0] if thought else ''}<action>{first}</action>", texts[-1]]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else makes what is to be at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _keep(student: Student, path: Path, demonstrations: int) -> None:
    """Whole or not at all."""
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        student.save(Path(aside) / "policy")
        (Path(aside) / "policy" / _COUNT).write_text(json.dumps(demonstrations), "utf-8")
        (Path(aside) / "policy").rename(path)


def _turns(demonstration: Demonstration) -> list[str]:
    return [
        "".join(segment.text for segment in passage.segments)
        for passage in demonstration.passages
        if passage.by_policy
    ]


def halving(demonstrations: Sequence[Demonstration], count: int, *, upsampled: bool) -> list[Demonstration]:
    """Some `count` of which every kind has half as many as the one before, at least one."""
    kinds: defaultdict[str, list[Demonstration]] = defaultdict(list)
    for demonstration in demonstrations:
        kinds[demonstration.question.operation].append(demonstration)
    chosen: list[list[Demonstration]] = []
    for members in kinds.values():
        count = max(1, count // 2)
        chosen.append(members[:count])
    most = max(map(len, chosen))
    return [one for members in chosen for one in (islice(cycle(members), most) if upsampled else members)]


def _without_thoughts(texts: Sequence[str]) -> list[str]:
    return [_THOUGHT.sub("<think></think>", text) for text in texts]


def _rewards(rollout: ScoredRollout) -> list[float]:
    """What each episode, or each step of a tree, earned."""
    if isinstance(rollout, RewardedTree):
        return list(rollout.rewards)
    return [sum(member.turn_rewards) + member.outcome for member in rollout.members]
