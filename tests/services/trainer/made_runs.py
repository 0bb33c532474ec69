"""Runs as a trainer leaves them on the disk, made without training: what is said in them is hostile."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from kbqa.recipes import Recipe, load_recipe
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits, State
from kbqa.runs.judged import JudgedHeader
from kbqa.runs.statistics import Curves
from kbqa.runs.transcripts import judged_question, trace
from kbqa.trajectory import ExecutedAction, Group, Hop, Question, RewardedTrajectory, Status, Trajectory, Turn
from kbqa.tree import RewardedTree, ScoredRollout, Step, Tree


class Codec:
    """Reads tokens as numbers: a real tokenizer would load torch first."""

    def encode(self, segments):
        raise NotImplementedError

    def decode(self, token_ids) -> str:
        return f"{HOSTILE} {' '.join(map(str, token_ids))}"


CODEC = Codec()
VERSION = "v000001-00000000"
_TAKEN = "document.title='taken'"
HOSTILE = f'<img src=x onerror="{_TAKEN}"><script>{_TAKEN}</script></think>\u202e{{{{7*7}}}}'
QUESTION = Question("q7", f"Who is {HOSTILE}?", ("Ada & <b>Byron</b>",), ("Ada",), "world")


def made_turn(
    start: int, status: Status = Status.OK, *, found: int = 2, code: str | None = None, said: str = ""
) -> Turn:
    """A turn of four tokens with one action, unless it answers or could not be understood."""
    names = tuple(f"Lovelace {i}" for i in range(found))
    action = ExecutedAction(
        "get_tail_entities",
        {"entity": "Ada", "relation": "parent <i>of</i>"},
        code,
        () if code else names,
        () if code else names,
        "invalid_relation" if code else None,
    )
    acts = status in (Status.OK, Status.ACTION_ERROR)
    return Turn(
        start,
        start + 4,
        (-0.5,) * 4,
        said or f'<think>I look up {HOSTILE}</think><kg-query>get_tail_entities("Ada")</kg-query>',
        status,
        thought=f"I look up {HOSTILE}",
        well_formed=True,
        actions=(action,) if acts else (),
        observation=f"<information>{', '.join(names) or HOSTILE}</information>" if acts else "",
        policy_version=VERSION,
        elapsed_ms=12.3,
    )


def episode(rng: random.Random, skill: float) -> RewardedTrajectory:
    turns: list[Turn] = []
    for _ in range(rng.randint(1, 3)):
        wrong = rng.random() > 0.5 + skill / 2
        turns.append(
            made_turn(
                8 + 6 * len(turns),
                Status.ACTION_ERROR if wrong else Status.OK,
                code="KG_RELATION_NOT_FOUND" if wrong else None,
            )
        )
    right = rng.random() < skill
    ended = Status.ANSWERED if right or rng.random() < 0.8 else Status.UNPARSABLE
    turns.append(made_turn(8 + 6 * len(turns), ended, said=f"<think>done</think><answer>{HOSTILE}</answer>"))
    status = Status.ANSWERED if ended is Status.ANSWERED else Status.OUT_OF_TURNS
    trajectory = Trajectory(tuple(range(turns[-1].end)), tuple(turns), status, (HOSTILE, "Byron"))
    score = float(right)
    return RewardedTrajectory(
        trajectory,
        (0.5,) * len(turns),
        1.0 + score,
        {"f1": score, "em": score, "hit": score, "retrieval": 0.5},
    )


def group(rng: random.Random, id_: str, skill: float, n: int = 4) -> Group:
    return Group(id_, QUESTION, tuple(episode(rng, skill) for _ in range(n)))


def tree(rng: random.Random, id_: str, levels: int = 4) -> RewardedTree:
    """Each state has three branches, of which one or two go on."""
    prompt = tuple(range(8))
    steps: list[Step] = []
    active: list[int | None] = [None]
    for level in range(levels):
        parents, active = active, []
        for parent in parents:
            for branch in range(3):
                start = 8 + 6 * level
                last = level == levels - 1
                if branch == 2:
                    turn = made_turn(start, Status.ACTION_ERROR, code="KG_NO_RESULTS")
                    steps.append(Step(parent, tuple(range(6)), turn, Status.ACTION_ERROR))
                elif last or rng.random() < 0.3:
                    turn = made_turn(start, Status.ANSWERED, said="<answer>x</answer>")
                    steps.append(Step(parent, tuple(range(4)), turn, Status.ANSWERED, (HOSTILE,), ((),)))
                else:
                    steps.append(Step(parent, tuple(range(6)), made_turn(start)))
                    active.append(len(steps) - 1)
    rewards = tuple(round(rng.uniform(-0.7, 1.0), 2) for _ in steps)
    components = tuple(
        {}
        if s.status is None
        else {"f1": float(s.status is Status.ANSWERED and rng.random() < 0.4), "hit": 0.0}
        for s in steps
    )
    return RewardedTree(id_, QUESTION, Tree(prompt, tuple(steps), 2 * len(steps)), rewards, components)


def judge(
    directory: RunDirectory, phase: str, skill: float, *, seed: int, number: int = 24, said: str = HOSTILE
) -> float:
    """Answers of a phase to test questions, of which two ask for the same each time; returns the mean F1."""
    rng = random.Random(f"{phase}/{skill}")
    answered = []
    for index in range(number):
        asked = replace(
            QUESTION,
            id=f"test-{index}",
            text=f"Seed {seed}: who is {said} {index}?",
            path=(Hop("parent"),) * (index // 2 % 3 + 1),
            topic_entities=(f"Ada {index // 6}",),
        )
        answered.append(judged_question(asked, group(rng, f"e{index}", skill, n=1), with_turns=True))
    directory.judged.write(phase, JudgedHeader(version=VERSION, split="test"), answered)
    return fmean(one.components["f1"] for one in answered)


def make_run(
    home: Path,
    recipe: Recipe | None = None,
    *,
    steps: int = 30,
    state: State = State.DONE,
    seed: int = 1,
    name: str | None = None,
    dataset: str = "world",
    skills: Mapping[str, float] | None = None,
) -> RunDirectory:
    """A run of `steps` steps of reinforcement learning, whose agent gets better.

    Args:
        skills: by phase; what these answer to test questions is on record, see `judge`.
    """
    recipe = recipe or load_recipe("kg-r1-small")
    rng = random.Random(seed)
    directory = Runs(home / "runs").create(recipe, dataset, SplitLimits(), seed, name)
    curves, advantage = Curves(()), recipe.advantage.build()
    traces = directory.traces(150)
    records = []
    for step in range(1, steps + 1):
        skill = 1 - math.exp(-step / steps * 2)
        ids = [f"t{4 * step + i:07d}" for i in range(4)]
        rollouts: list[ScoredRollout] = [
            tree(rng, id_) if recipe.rollout.kind == "tree" else group(rng, id_, skill) for id_ in ids
        ]
        outcomes = ["trained", "trained", "trained", "no_spread"]
        record = {
            **curves.of(rollouts),
            "loss": rng.gauss(0, 0.1),
            "entropy": 1.2 - skill,
            "gradient_norm": rng.uniform(0.2, 1),
            "waited_s": rng.uniform(0.5, 1),
            "trained_s": rng.uniform(0.2, 0.5),
            "published_s": 0.05,
            "groups": {"trained": 3 * step, "no_spread": step},
        }
        records.append(_record(len(records) + 1, "step", step, steps, record))
        if step % 10 == 0:
            evaluation = {"f1": skill * 0.9, "split": "validation", "version": VERSION}
            records.append(_record(len(records) + 1, "evaluation", step, steps, evaluation))
        groups = [trace(step, o, r, advantage, CODEC) for o, r in zip(outcomes, rollouts, strict=True)]
        traces.write(step, VERSION, groups)
    directory.metrics_path.write_text("".join(json.dumps(record) + "\n" for record in records))
    f1 = {"base": 0.01, "cold_start": 0.4, "rl": 0.7}
    judged_by = {}
    if skills is not None:
        judged_by = {"judged_by": {"split": "test", "questions": 24}}
        f1 = {phase: judge(directory, phase, skill, seed=seed) for phase, skill in skills.items()}
    directory.progress_path.write_text(
        json.dumps(
            {
                "phase": "done" if state is State.DONE else "rl",
                "step": steps,
                "of": steps,
                "seconds": 4.0 * steps,
                "results": {"f1": f1, "versions": {"rl": VERSION}, **judged_by},
                "error": None,
            }
        )
    )
    directory.write(directory.read().model_copy(update={"state": state}))
    return directory


def _record(seq: int, kind: str, step: int, of: int, values: dict[str, object]) -> dict[str, object]:
    head = {
        "seq": seq,
        "time": 1.7e9 + seq,
        "kind": kind,
        "phase": "rl",
        "step": step,
        "of": of,
        "seconds": 4.0 * step,
    }
    return head | values
