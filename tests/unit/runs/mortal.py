"""The rl phase of one run, in processes that kill themselves at a named point, one after another.

The replies are made by hand, at once, and hang on nothing but the question and the sample.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import resource
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch

from kbqa.datasets import load_dataset
from kbqa.errors import KbqaError
from kbqa.policy_store import PolicyStore
from kbqa.recipes import recipe_from
from kbqa.runs.context import Context
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits
from kbqa.runs.inbox import Inbox
from kbqa.runs.journal import Journal
from kbqa.runs.phases import Material
from kbqa.runs.queued import QueuedSource
from kbqa.runs.reinforcement import Reinforcement
from kbqa.runs.student import Student
from kbqa.trajectory import Group, RewardedTrajectory, Status, Trajectory, Turn
from kbqa.wire import Purpose, RolloutReply

# Where a life ends: the function, at which call of it, and whether after it has returned.
POINTS: dict[str, tuple[str, str, int, bool]] = {
    "with half a version": ("kbqa.policy_store.store", "_dump_json", 4, True),
    "after a version is in place, before anything else": (
        "kbqa.policy_store.store.PolicyStore",
        "publish",
        4,
        True,
    ),
    "between publish and checkpoint": ("kbqa.runs.reinforcement.Reinforcement", "_record", 2, True),
    "with half a checkpoint": ("kbqa.training.tensor_files", "checksum", 2, True),
    "before a checkpoint is in place": ("kbqa.training.checkpoints", "put_in_place", 2, False),
    "before the answers of a checkpoint are let go": (
        "kbqa.runs.queued.QueuedRollouts",
        "_delete",
        2,
        False,
    ),
    "while a line of metrics is written": ("kbqa.runs.journal.Journal", "_write", 9, False),
}


class Workers(QueuedSource):
    """Answers every request at once, as the newest version would."""

    def __init__(self, store: PolicyStore, inbox: Inbox) -> None:
        super().__init__(self._answer, inbox)
        self._store = store

    def _answer(self, request) -> None:
        newest = self._store.newest(request.run, request.min_policy_version)
        assert newest is not None
        members = []
        # An evaluation finds the same in all that hold the same weights, whatever their version is called.
        stream = request.seed if request.purpose is Purpose.TRAIN else newest.manifest.step
        for sample in range(request.n):
            rng = random.Random(f"{request.question.id}/{stream}/{sample}")
            ids = (5, 6, 7, *(rng.randrange(8, 200) for _ in range(6)))
            turn = Turn(3, 9, (-3.0,) * 6, "x", Status.ANSWERED, policy_version=newest.id)
            outcome = rng.random()
            trajectory = Trajectory(ids, (turn,), Status.ANSWERED)
            members.append(RewardedTrajectory(trajectory, (0.0,), outcome, {"f1": outcome}))
        self._inbox.accept(
            RolloutReply(
                run=request.run,
                request_id=request.request_id,
                purpose=request.purpose,
                group=Group(request.request_id, request.question, tuple(members)),
                worker="w",
            )
        )


def prepare(root: Path, seed: int) -> RunDirectory:
    """A run, and the version that it begins with."""
    recipe = recipe_from(json.loads((root / "recipe.json").read_text()))
    directory = Runs(root / "runs").create(recipe, "world", SplitLimits(), seed)
    context, material = assemble(directory)
    assert recipe.small_policy is not None
    texts = [question.text for question in material.questions.train]
    context.publish(Student.fresh(recipe.small_policy.build(), texts, ["<think>"], seed), 0, {})
    return directory


def assemble(directory: RunDirectory) -> tuple[Context, Material]:
    record, root = directory.read(), directory.path.parent.parent
    store = PolicyStore(root / "policies")
    context = Context(
        directory=directory,
        record=record,
        recipe=record.resolved_recipe(),
        home=directory.path.parent.parent,
        store=store,
        tools=SimpleNamespace(graphs=lambda: [SimpleNamespace(name="world", version="1")]),  # type: ignore[arg-type]
        journal=Journal(directory),
        rollouts=Workers(store, directory.inbox),
        stop=threading.Event(),
    )
    splits = load_dataset("world", record.seed).splits
    few = [split[:7] for split in (splits.cold_start, splits.train, splits.validation, splits.test)]
    return context, Material(("world",), tuple, type(splits)(*few))


def live(directory: RunDirectory, point: str) -> None:
    """Go on with the run, up to the point if there is one."""
    if point in POINTS:
        die(*POINTS[point])
    context, material = assemble(directory)
    if point == "the disk is full":
        on_record = context.journal.record
        context.journal.record = lambda *args: (on_record(*args), fill_the_disk())[0]  # type: ignore[method-assign]
    start = context.store.versions(context.run)[0]
    Reinforcement(context, material, start).run()


def die(where: str, name: str, call: int, after: bool) -> None:
    """SIGKILL this process at a call of a function."""
    module, _, owner = where.rpartition(".")
    holder = getattr(importlib.import_module(module), owner)
    function: Callable[..., object] = getattr(holder, name)
    calls = 0

    def deadly(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, deadly)


def fill_the_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def play_lives(root: Path, seed: int, points: tuple[str, ...], said: Path) -> None:
    """Play a run's lives, each to a point of `POINTS`; the last should be named `lives`.

    Args:
        root: has the recipe, and is for the run.
        said: for a line about each life, which says how it ended.
    """
    torch.set_num_threads(1)
    directory = prepare(root, seed)
    for point in points:
        child = os.fork()
        if child == 0:
            try:
                live(directory, point)
            except KbqaError as error:
                say(said, f"{type(error).__name__}: {error}")
                os._exit(2)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(said, f"{point}: {os.waitstatus_to_exitcode(status)}")


def say(said: Path, line: str) -> None:
    with said.open("a") as file:
        file.write(f"{line}\n")
