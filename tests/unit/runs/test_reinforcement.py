"""The rl phase with a real model and a real store; the replies are made by hand."""

from __future__ import annotations

import copy
import json
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from kbqa.datasets import load_dataset
from kbqa.errors import RunError
from kbqa.kg.client import HttpGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.policy_store.durable import remove_directory
from kbqa.recipes import recipe_from
from kbqa.runs.context import Context, Stopped
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.journal import Journal
from kbqa.runs.phases import Material
from kbqa.runs.queued import QueuedSource
from kbqa.runs.reinforcement import Reinforcement
from kbqa.runs.student import Student
from kbqa.trajectory import (
    Group,
    RewardedTrajectory,
    RewardedTree,
    Status,
    Step,
    Trajectory,
    Tree,
    Turn,
)
from kbqa.wire import Purpose, RolloutReply

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


@pytest.fixture
def begin_trees(begin, tiny_recipe):
    """`begin`, with a recipe whose rollouts are trees."""
    del tiny_recipe["rollout"]["n"]
    tiny_recipe["rollout"] |= {"kind": "tree", "k": 3, "max_active": 1, "max_nodes": 6}
    tiny_recipe["reward"], tiny_recipe["advantage"] = {"name": "isp_kgr"}, {"kind": "state"}

    def begin_trees(**changes: object):
        context, material, start = begin(**changes)
        foresters = Foresters(context.store, context.directory.inbox)
        return replace(context, rollouts=foresters), material, start

    return begin_trees


def test_trees_are_trained_on_and_settled_by_their_requests(begin_trees) -> None:
    context, material, start = begin_trees(steps=2)
    Reinforcement(context, material, start).run()
    settled = ledger(context)["settled"]
    assert [outcome for outcome, _ in settled.values()].count("trained") == 8  # 2 steps of 4 questions
    steps = [r for r in context.directory.records() if r["kind"] == "step"]
    assert not any(record["skipped"] for record in steps)
    assert [record["branches"] for record in steps] == [2.5, 2.5]
    assert [record["pruned"] for record in steps] == pytest.approx([4 / 9, 4 / 9])
    assert [(record["unexplored"], record["success"]) for record in steps] == [(1.0, 1.0)] * 2
    assert context.journal.results["f1"] == {"rl": 1.0}


def test_a_tree_whose_siblings_earn_the_same_teaches_nothing(begin_trees) -> None:
    context, material, start = begin_trees(steps=1)
    context.rollouts.outcomes = (0.5, 0.5, 0.5)
    Reinforcement(context, material, start).run()
    assert [o for o, _ in ledger(context)["settled"].values()].count("no_spread") == 4


def ledger(context) -> dict:
    return json.loads(context.directory.ledger_path.read_text())


@pytest.mark.parametrize("kl_coefficient", [0.0, 0.01])
def test_every_step_publishes_and_settles(begin, kl_coefficient) -> None:
    context, material, start = begin(steps=3, kl_coefficient=kl_coefficient)
    Reinforcement(context, material, start).run()
    numbers = [version.number for version in context.store.versions(context.run)]
    assert numbers[-1] == start.number + 3
    settled = ledger(context)["settled"]
    assert [outcome for outcome, _ in settled.values()].count("trained") == 12  # 3 steps of 4 questions
    assert [outcome for outcome, _ in settled.values()].count("run_ended") == len(settled) - 12
    steps = [r for r in context.directory.records() if r["kind"] == "step"]
    assert [record["step"] for record in steps] == [1, 2, 3]
    assert not any(record["skipped"] for record in steps)
    assert context.journal.results["f1"] == {"rl": 1.0}
    assert torch.isfinite(torch.tensor([record["loss"] for record in steps])).all()


def test_versions_are_published_as_often_as_workers_need_them_and_when_they_are_judged(begin) -> None:
    """Every third step, and what a checkpoint names, an evaluation measures or the run ends with."""
    schedule = {"publish_every": 3, "max_staleness": 2, "checkpoint_every": 5, "validate_every": 100}
    context, material, start = begin(steps=7, **schedule)
    Reinforcement(context, material, start).run()
    versions = [v for v in context.store.versions(context.run) if v.number > start.number]
    published = {v.manifest.step: v.id for v in versions}
    assert set(published) <= {3, 5, 7}
    assert versions[-1].number == start.number + 3
    steps = [r for r in context.directory.records() if r["kind"] == "step"]
    assert len(steps) == 7
    assert all(record["staleness"] <= 2 for record in steps)
    assert context.journal.results["versions"]["rl"] == published[7]


def test_the_trainer_is_alone_on_its_gpu_while_it_computes_and_never_while_it_waits(begin) -> None:
    context, material, start = begin(steps=2)
    events: list[str] = []

    @contextmanager
    def alone():
        events.append("sleep")
        yield
        events.append("wake")

    answer = context.rollouts._answer

    def answered(request) -> None:
        assert events.count("sleep") == events.count("wake")
        answer(request)

    context.rollouts._answer = answered
    Reinforcement(replace(context, alone=alone), material, start).run()
    assert events == ["sleep", "wake"] * 2


def test_the_reference_may_be_another_model_than_the_first_one(begin, tiny_recipe, tmp_path) -> None:
    """KnowCoder-A1: the second phase keeps the reference of the first, the cold-started model (Eq. 6)."""
    divergences = []
    for reference in (None, str(tmp_path / "cold-start")):
        tiny_recipe["optimisation"]["reference"] = reference
        context, material, start = begin(steps=1, kl_coefficient=0.01)
        if reference is not None:
            texts = [question.text for question in material.questions.train]
            (tmp_path / "cold-start").mkdir()
            Student.fresh(context.recipe.small_policy.build(), texts, ["<think>"], seed=2).save(
                tmp_path / "cold-start"
            )
        Reinforcement(context, material, start).run()
        divergences += [r["kl"] for r in context.directory.records() if r["kind"] == "step"]
    assert divergences[0] == pytest.approx(0.0, abs=1e-5)
    assert divergences[1] > 1e-3


def test_groups_without_spread_count_and_teach_nothing(begin) -> None:
    context, material, start = begin(steps=2)
    context.rollouts.outcomes = (0.5, 0.5, 0.5)
    Reinforcement(context, material, start).run()
    assert [o for o, _ in ledger(context)["settled"].values()].count("no_spread") == 8
    assert all(r["skipped"] for r in context.directory.records() if r["kind"] == "step")
    newest = context.store.newest(context.run)
    assert newest is not None
    assert newest.id == start.id  # nothing changed, so nothing was published


def test_a_run_ends_after_so_many_sampled_tokens_whatever_interrupts_it(begin) -> None:
    context, material, start = begin(steps=50, max_sampled_tokens=10 * TOKENS, checkpoint_every=1)
    questions = context.recipe.schedule.questions_per_step
    context.rollouts.killed_at = 3 * questions + 1  # with requests of the next step on their way
    with pytest.raises(Killed):
        Reinforcement(context, material, start).run()
    assert 0 < len(records(context, "step")) < 3
    Reinforcement(context, material, start).run()
    counted = [r["sampled_tokens"] for r in context.directory.records() if r["kind"] == "step"]
    assert counted == [step * questions * TOKENS for step in range(1, len(counted) + 1)]
    assert counted[-2] < 10 * TOKENS <= counted[-1]


def test_a_step_that_is_not_finite_is_skipped_and_reported(begin) -> None:
    context, material, start = begin(steps=2)
    reinforcement = Reinforcement(context, material, start)
    with torch.no_grad():
        reinforcement._student.model.model.norm.weight.fill_(torch.nan)
    reinforcement.run()
    assert [o for o, _ in ledger(context)["settled"].values()].count("non_finite") == 8
    newest = context.store.newest(context.run)
    assert newest is not None
    assert newest.id == start.id
    assert all(r["skipped"] for r in context.directory.records() if r["kind"] == "step")


def test_it_ends_when_its_time_is_over(begin) -> None:
    context, material, start = begin(steps=100_000, max_seconds=0.5, validate_every=100_000)
    reinforcement = Reinforcement(context, material, start)
    reinforcement.run()
    assert 0.5 <= reinforcement.seconds < 10
    assert ledger(context)["in_flight"] == []


def test_stopping_loses_no_step_and_resuming_starts_from_the_same_weights(begin) -> None:
    context, material, start = begin(steps=5, checkpoint_every=100)
    reinforcement = Reinforcement(context, material, start)
    record = context.journal.record

    def stop_after_two(kind, values, step=None) -> None:
        record(kind, values, step)
        if kind == "step" and step == 2:
            context.stop.set()

    context.journal.record = stop_after_two
    with pytest.raises(Stopped):
        reinforcement.run()
    context.journal.record = record
    before = context.store.newest(context.run)
    saved = ledger(context)
    assert before is not None
    assert len(saved["in_flight"]) == 8

    context.stop.clear()
    again = Reinforcement(context, material, start)
    restored = context.store.newest(context.run)
    assert restored is not None
    assert restored.number == before.number + 1
    assert restored.manifest.files["model.safetensors"] == before.manifest.files["model.safetensors"]
    again.run()
    settled = ledger(context)["settled"]
    assert {key: settled[key] for key in saved["settled"]} == saved["settled"]
    assert [o for o, _ in settled.values()].count("trained") == 20
    # Requests that were out were answered already, so nobody was asked twice.
    assert len(context.rollouts.asked) == len(set(context.rollouts.asked))


def test_an_adapter_is_all_that_is_published_and_resumed_from(begin, tiny_recipe) -> None:
    tiny_recipe["base_model"], tiny_recipe["cold_start"] = "a/model", None
    tiny_recipe["optimisation"]["lora"] = {"rank": 8}
    context, material, start = begin(steps=2, kl_coefficient=0.1)
    Reinforcement(context, material, start).run()
    last = context.store.newest(context.run)
    assert (start.manifest.kind, last.manifest.kind) == ("full", "lora")
    assert "adapter_model.safetensors" in last.manifest.files
    assert "model.safetensors" not in last.manifest.files
    assert last.manifest.base_model == "a/model"
    Reinforcement(context, material, start)
    again = context.store.newest(context.run)
    assert again.number > last.number
    weights = "adapter_model.safetensors"
    assert again.manifest.files[weights] == last.manifest.files[weights]


def records(context, kind: str) -> list[dict]:
    return [record for record in context.directory.records() if record["kind"] == kind]


def test_each_step_says_where_its_time_went_and_what_it_was_made_of(begin) -> None:
    context, material, start = begin(steps=3, checkpoint_every=1, validate_every=2)
    Reinforcement(context, material, start).run()
    first, second, third = records(context, "step")
    parts = {"waited_s", "trained_s", "published_s", "checkpointed_s"}
    assert first.keys() >= parts | {"queued_s", "rolled_out_s", "aged_s"}
    assert "evaluated_s" not in second
    assert third["evaluated_s"] > 0  # since the record before it
    assert sum(third[part] for part in parts) < third["seconds"]
    assert [record["no_spread"] for record in (first, second, third)] == [0.0] * 3


def test_steps_without_a_finite_loss_end_the_run_with_the_reason(begin, tiny_recipe) -> None:
    tiny_recipe["guards"] = {"max_not_finite": 3}
    context, material, start = begin(steps=9, checkpoint_every=100)
    reinforcement = Reinforcement(context, material, start)
    with torch.no_grad():
        reinforcement._student.model.model.norm.weight.fill_(torch.nan)
    with pytest.raises(RunError, match="not finite in 3 steps in a row, up to step 3"):
        reinforcement.run()
    assert len(records(context, "step")) == 3


def test_an_alarm_is_recorded_shown_and_may_end_the_run(begin, tiny_recipe, caplog) -> None:
    tiny_recipe["guards"] = {"steps": 2, "max_no_spread": 0.5, "stop_on": ["no_spread"]}
    context, material, start = begin(steps=9, validate_every=100)
    context.rollouts.outcomes = (0.5, 0.5, 0.5)
    Reinforcement(context, material, start).run()
    assert len(records(context, "step")) == 2
    (alarm,) = records(context, "alarm")
    assert (alarm["alarm"], alarm["value"], alarm["bound"], alarm["step"]) == ("no_spread", 1.0, 0.5, 2)
    assert context.journal.results["alarms"]["no_spread"]["since"] == 2
    assert context.journal.results["ended"] == "alarm since step 2: no_spread 1 is above 0.5"
    assert [record["reason"] for record in records(context, "ended")] == [context.journal.results["ended"]]
    assert "alarm" in [record.message for record in caplog.records]
    assert context.journal.results["f1"] == {"rl": 1.0}  # it ended as a run does: with its test questions
    assert ledger(context)["in_flight"] == []


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


@pytest.fixture
def begin_judged(begin, tiny_recipe):
    def begin_judged(**changes: object):
        context, material, start = begin(**changes)
        return replace(context, rollouts=Judges(context.store, context.directory.inbox)), material, start

    return begin_judged


def test_it_ends_with_the_best_weights_if_the_recipe_says_by_what(begin_judged, tiny_recipe) -> None:
    tiny_recipe["guards"] = {"patience": 2}
    tiny_recipe["schedule"]["best_by"] = {"metric": "f1"}
    context, material, start = begin_judged(steps=20, validate_every=2, checkpoint_every=3)
    Reinforcement(context, material, start).run()
    assert len(records(context, "step")) == 8  # looks at 2, 4 (the best), 6 and 8
    best = context.journal.results["best"]
    assert (best["step"], best["value"]) == (4, 0.75)
    assert context.journal.results["ended"] == "no new best in 2 looks"
    kept = context.store.get(context.run, best["version"])
    final = context.store.get(context.run, context.journal.results["versions"]["rl"])
    assert final == context.store.newest(context.run)
    assert final.manifest.step == 4
    weights = "model.safetensors"
    assert final.manifest.files[weights] == kept.manifest.files[weights]
    checkpoints = sorted(path.name for path in context.directory.checkpoints_path.iterdir())
    assert checkpoints == ["step-000004", "step-000006", "step-000008"]


def test_without_that_it_ends_with_the_last_weights(begin_judged) -> None:
    context, material, start = begin_judged(steps=6, validate_every=2)
    Reinforcement(context, material, start).run()
    final = context.store.get(context.run, context.journal.results["versions"]["rl"])
    assert final.manifest.step == 6
    assert context.journal.results["best"] is None


def stages(until: dict[str, object], **section: object) -> dict[str, object]:
    """A curriculum of two stages, the second of which pays no format."""
    two = [{"name": "first", "until": until}, {"name": "second", "reward": {"w_format": 0.0}}]
    return {"stages": two, **section}


def asked_in_training(context) -> dict[str, str]:
    return {id_: question for id_, question in context.rollouts.questions.items() if id_.startswith("t")}


def stage_records(context) -> list[tuple[int, str]]:
    return [(record["step"], record["name"]) for record in records(context, "stage")]


def test_a_stage_begins_at_its_step_and_its_requests_say_so(begin, tiny_recipe) -> None:
    tiny_recipe["curriculum"] = stages({"steps": 2}, balance="hops")
    context, material, start = begin(steps=4, max_staleness=0, max_in_flight=4, validate_every=100)
    Reinforcement(context, material, start).run()
    assert stage_records(context) == [(2, "second")]
    assert [record["stage"] for record in records(context, "step")] == [0, 0, 1, 1]
    trained = [id_ for id_ in context.rollouts.asked if id_.startswith("t")]
    assert [context.rollouts.stages[id_] for id_ in trained] == [0] * 8 + [1] * 8
    assert {stage for id_, stage in context.rollouts.stages.items() if id_.startswith("e")} == {None}
    assert context.journal.results["stage"] == "second"


def test_a_stop_in_the_middle_of_a_step_undoes_that_step_and_loses_no_other(begin) -> None:
    context, material, start = begin(steps=4, checkpoint_every=100)
    reinforcement = Reinforcement(context, material, start)
    update, done = reinforcement._learner.update, []

    def stopped_at_the_third(questions, rate, check):
        if len(done) == 2:
            context.stop.set()
        result = update(questions, rate, check)
        done.append(result)
        return result

    reinforcement._learner.update = stopped_at_the_third
    with pytest.raises(Stopped):
        reinforcement.run()
    assert len(done) == 2
    before = context.store.newest(context.run)

    context.stop.clear()
    again = Reinforcement(context, material, start)
    restored = context.store.newest(context.run)
    assert records(context, "resumed")[-1]["step"] == 2
    assert restored.manifest.files["model.safetensors"] == before.manifest.files["model.safetensors"]
    again.run()
    assert [record["step"] for record in records(context, "step")] == [1, 2, 3, 4]
    assert len(context.rollouts.asked) == len(set(context.rollouts.asked))


def test_a_stage_begins_when_the_evaluation_has_stopped_rising(begin_judged, tiny_recipe) -> None:
    tiny_recipe["curriculum"] = stages({"patience": 2, "metric": "f1"})
    context, material, start = begin_judged(steps=10, validate_every=2)
    context.rollouts.scores["validation"] = [0.25, 0.75, 0.5, 0.5, 0.5]
    Reinforcement(context, material, start).run()
    assert stage_records(context) == [(8, "second")]
    assert records(context, "stage")[0]["reason"] == "f1 has not risen above 0.750 in 2 looks"


def test_a_run_that_is_resumed_is_in_the_stage_that_it_was_in(begin, tiny_recipe) -> None:
    tiny_recipe["curriculum"] = stages({"steps": 3}, balance="hops", strength=0.5)
    numbers = {"steps": 6, "max_staleness": 0, "max_in_flight": 4, "validate_every": 100}
    context, material, start = begin(**numbers, checkpoint_every=2)
    Reinforcement(context, material, start).run()
    undisturbed = asked_in_training(context)

    context, material, start = begin(**numbers, checkpoint_every=2)
    context.rollouts.killed_at = 5 * 4 + 1  # after step 5; what came after the checkpoint of step 4 is undone
    with pytest.raises(Killed):
        Reinforcement(context, material, start).run()
    assert len(records(context, "step")) == 5
    Reinforcement(context, material, start).run()
    assert [record["step"] for record in records(context, "resumed")] == [4]
    assert stage_records(context) == [(3, "second")]
    assert [record["stage"] for record in records(context, "step")] == [0, 0, 0, 1, 1, 1]
    assert asked_in_training(context) == undisturbed


def test_tiers_come_one_after_the_other(begin, tiny_recipe) -> None:
    easy = {"name": "easy", "tiers": ["easy"], "until": {"steps": 1}}
    tiny_recipe["curriculum"] = {"representatives": 1, "stages": [easy, {"name": "all"}]}
    context, material, start = begin(steps=2, max_staleness=0, max_in_flight=4, validate_every=100)
    Reinforcement(context, material, start).run()
    hops = {question.id: question.hops for question in material.questions.train}
    asked = [hops[id_] for key, id_ in sorted(context.rollouts.questions.items()) if key.startswith("t")]
    assert set(asked[:4]) == {1}
    assert len(set(asked[4:])) > 1


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(begin) -> None:
    context, material, start = begin(steps=4, checkpoint_every=2)
    Reinforcement(context, material, start).run()
    (tensors,) = (context.directory.checkpoints_path / "step-000004").glob("*.safetensors")
    tensors.write_bytes(b"half")
    Reinforcement(context, material, start)
    assert [record["step"] for record in records(context, "resumed")] == [2]
    (refused,) = records(context, "refused")
    assert f"step-000004: {tensors.name} does not match its checksum" in refused["reason"]


def test_without_its_checkpoints_the_phase_begins_anew(begin) -> None:
    context, material, start = begin(steps=3)
    Reinforcement(context, material, start).run()
    remove_directory(context.directory.checkpoints_path)
    Reinforcement(context, material, start).run()
    assert [record["step"] for record in records(context, "step")] == [1, 2, 3]
    assert [outcome for outcome, _ in ledger(context)["settled"].values()].count("trained") == 12


def test_other_questions_than_those_it_began_with_are_refused(begin) -> None:
    context, material, start = begin(steps=3)
    Reinforcement(context, material, start).run()
    others = replace(material.questions, train=material.questions.train[::-1])
    with pytest.raises(RunError, match="the training questions changed since run"):
        Reinforcement(context, replace(material, questions=others), start)
