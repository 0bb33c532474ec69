"""One run: reinforcement learning from a cold start, by the loop that services run, in one process.

No queue and no server stands between; the clock is that of the processor, so that what else the machine
does shortens no run.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

from benchmarks.learning.beginning import Beginning
from benchmarks.learning.design import Design, Variant
from benchmarks.learning.scene import Scene
from kbqa.recipes import Recipe, load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.student import Student
from kbqa.runs.training import train

_ENDLESS = 1_000_000  # steps, where tokens end it


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
        beginning = Beginning(scene, shelf)
        start = beginning.cold_started(variant.cold_start)
        before = beginning.f1(start)
        began = time.process_time()
        with tempfile.TemporaryDirectory(prefix="kbqa-trial-", dir=shelf) as home:
            directory = Runs(Path(home) / "runs").create(
                recipe_of(design, variant), variant.dataset, SplitLimits(test=0), seed
            )
            with open_run(directory, scene.tools, clock=time.process_time) as context:
                version = context.publish(Student.load(start.path), 0, {})
                context.journal.keep(versions={"base": version.id, "cold_start": version.id})
                train(context)
                trained = context.version(context.journal.results["versions"]["rl"])
            records = [record for record in directory.records() if record["kind"] == "step"]
            f1 = scene.f1(trained.path, trained.manifest)
        rewards = [record["reward"] for record in records]
        quarter = max(1, -(-len(rewards) // 4))
        return Outcome(
            f1=tuple(round(value, 4) for value in f1),
            hops=tuple(question.hops for question in scene.questions.test),
            start=before,
            steps=len(records),
            sampled_tokens=records[-1]["sampled_tokens"] if records else 0,
            reward=tuple(round(fmean(rewards[i : i + quarter]), 4) for i in range(0, len(rewards), quarter)),
            demonstrations=start.demonstrations,
            seconds=round(time.process_time() - began, 1),
        )


def recipe_of(design: Design, variant: Variant) -> Recipe:
    """The variant's recipe, with the schedule that the design gives all of them."""
    steps = _ENDLESS if variant.tokens is not None else variant.steps or design.steps
    schedule = {
        "schedule.steps": steps,
        "schedule.max_sampled_tokens": variant.tokens,
        "schedule.max_seconds": design.max_seconds,
        "schedule.max_run_seconds": None,
        # The last weights are compared: to choose among several by a validation would add noise.
        "schedule.validate_every": _ENDLESS,
        "schedule.best_by": None,
        "guards.patience": None,
    }
    return load_recipe(variant.recipe, {**variant.set, **schedule})
