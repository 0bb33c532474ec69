"""The rl phase of a run with a real model and a real store; the replies are made by hand."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace

import pytest

from kbqa.datasets import load_dataset
from kbqa.kg.client import HttpGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.recipes import recipe_from
from kbqa.runs.context import Context
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.journal import Journal
from kbqa.runs.phases import Material
from kbqa.runs.queued import QueuedSource
from kbqa.runs.student import Student
from kbqa.trajectory import Group, RewardedTrajectory, Status, Trajectory, Turn
from kbqa.tree import RewardedTree, Step, Tree
from kbqa.wire import Purpose, RolloutReply
from tests.ledgers import read_ledger

TOKENS = 10  # of each group


class Killed(BaseException):
    """The training process ends here, without a chance to tidy up."""


class Workers(QueuedSource):
    """Answers every request at once, as the newest version would.

    Attributes:
        outcomes: of the trajectories of a group.
        evaluation: of the one trajectory of an evaluated question.
        killed_at: number of the training request at which the process is killed.
    """

    def __init__(self, store: PolicyStore, inbox) -> None:
        super().__init__(self._answer, inbox)
        self._store = store
        self.outcomes = (0.0, 1.0, 0.5)
        self.evaluation = (1.0,)
        self.killed_at: int | None = None
        self.asked: list[str] = []
        self.stages: dict[str, int | None] = {}
        self.questions: dict[str, str] = {}

    def _answer(self, request) -> None:
        self.asked.append(request.request_id)
        if self.killed_at == sum(id_.startswith("t") for id_ in self.asked):
            raise Killed
        self.stages[request.request_id] = request.stage
        self.questions[request.request_id] = request.question.id
        newest = self._store.newest(request.run, request.min_policy_version)
        assert newest is not None
        question = request.question
        assert (question.path, question.form, question.sparql) == ((), "", "")  # nobody's business
        turn = Turn(3, 6, (-3.0,) * 3, "x", Status.ANSWERED, policy_version=newest.id)
        trajectory = Trajectory((5, 6, 7, 8, 9, 10), (turn,), Status.ANSWERED)
        members = tuple(
            RewardedTrajectory(trajectory, (0.0,), outcome, {"f1": outcome})
            for outcome in (self.outcomes if request.purpose is Purpose.TRAIN else self.evaluation)
        )
        self._inbox.accept(
            RolloutReply(
                run=request.run,
                request_id=request.request_id,
                purpose=request.purpose,
                group=Group(request.request_id, request.question, members),
                worker="w",
                sampled_tokens=TOKENS,
            )
        )


class Strangers(Workers):
    """The first reply to one training request has a token that the policy does not know."""

    request = "t0000001"

    def _answer(self, request) -> None:
        super()._answer(request)
        if request.request_id != self.request or self.asked.count(self.request) > 1:
            return
        reply = self._inbox.read(request.request_id)
        first, *others = reply.group.members
        token_ids = (*first.trajectory.token_ids[:-1], 1_000_000)
        foreign = replace(first, trajectory=replace(first.trajectory, token_ids=token_ids))
        self._inbox.discard([request.request_id])
        group = replace(reply.group, members=(foreign, *others))
        self._inbox.accept(reply.model_copy(update={"group": group}))


class Judges(Workers):
    """Evaluations find that the second version looked at is the best."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.scores = {"validation": [0.25, 0.75, 0.5, 0.5], "test": [1.0]}
        self.looked_at: list[str] = []

    def _answer(self, request) -> None:
        if request.purpose is Purpose.EVALUATE:
            version, split = request.request_id.removeprefix("e-").rsplit("-", 2)[0:2]
            if f"{split} {version}" not in self.looked_at:
                self.looked_at.append(f"{split} {version}")
            look = [entry for entry in self.looked_at if entry.startswith(split)].index(f"{split} {version}")
            self.evaluation = (self.scores[split][look],)
        super()._answer(request)


class Foresters(Workers):
    """Answer training requests by trees: three branches at the question, and two where the first led.

    A cap left the last of them unexplored, so it teaches nothing.
    """

    def _answer(self, request) -> None:
        if request.purpose is not Purpose.TRAIN:
            super()._answer(request)
            return
        newest = self._store.newest(request.run, request.min_policy_version)
        assert newest is not None

        def step(parent, start, status=None):
            turn = Turn(start, start + 2, (-3.0,) * 2, "x", Status.OK, policy_version=newest.id)
            return Step(parent, (8, 9, 10), turn, status)

        ended = (Status.UNPARSABLE, Status.ACTION_ERROR)
        steps = (step(None, 3), *(step(None, 3, s) for s in ended), step(0, 6, Status.ANSWERED), step(0, 6))
        tree = Tree((5, 6, 7), steps, sampled=9)
        components = ({}, {"f1": 0.0}, {"f1": 0.0}, {"f1": 1.0}, {})
        rewarded = RewardedTree(
            request.request_id, request.question, tree, (*self.outcomes, 0.4, 0.7), components
        )
        self._inbox.accept(
            RolloutReply(
                run=request.run,
                request_id=request.request_id,
                purpose=request.purpose,
                tree=rewarded,
                worker="w",
            )
        )


def ledger(context) -> dict:
    return read_ledger(context.directory.path)


def records(context, kind: str) -> list[dict]:
    return [record for record in context.directory.records() if record["kind"] == kind]


@pytest.fixture
def graphs(graph_server):
    with HttpGraphTools(graph_server.url) as tools:
        yield tools


@pytest.fixture
def splits():
    return load_dataset("world", seed=1).splits


@pytest.fixture
def make_run(tmp_path, tiny_recipe, graphs, splits):
    """A context and material, with `changes` to the recipe's schedule and optimisation."""

    def make(kl_coefficient: float = 0.0, **schedule: object):
        values = copy.deepcopy(tiny_recipe)
        values["schedule"].update(schedule)
        values["optimisation"]["kl_coefficient"] = kl_coefficient
        recipe = recipe_from(values)
        directory = Runs(tmp_path / "runs").create(recipe, "world", SplitLimits(), 1)
        store = PolicyStore(tmp_path / "policies")
        context = Context(
            directory=directory,
            record=directory.read(),
            recipe=recipe,
            home=directory.path.parent.parent,
            store=store,
            tools=graphs,
            journal=Journal(directory),
            rollouts=Workers(store, directory.inbox),
            stop=threading.Event(),
        )
        small = [split[:5] for split in (splits.cold_start, splits.train, splits.validation, splits.test)]
        return context, Material(("world",), tuple, type(splits)(*small))

    return make


@pytest.fixture
def begin(make_run):
    """A run whose rl phase is about to begin from random weights."""

    def begin(**changes: object):
        context, material = make_run(**changes)
        assert context.recipe.small_policy is not None
        texts = [question.text for question in material.questions.train]
        student = Student.fresh(context.recipe.small_policy.build(), texts, ["<think>"], seed=1)
        start = context.publish(student, 0, {})
        context.journal.keep(versions={"base": start.id})
        return context, material, start

    return begin


@pytest.fixture
def begin_judged(begin, tiny_recipe):
    def begin_judged(**changes: object):
        context, material, start = begin(**changes)
        return replace(context, rollouts=Judges(context.store, context.directory.inbox)), material, start

    return begin_judged
