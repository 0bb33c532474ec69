"""The steps of the rl phase, and how it ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kbqa.errors import RunError
from kbqa.policy_store import PolicyStore
from kbqa.policy_store.shelves import LocalShelf
from kbqa.runs.reinforcement import Reinforcement
from kbqa.runs.student import Student
from tests.unit.runs.reinforced import Foresters, Strangers, ledger, records


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


def test_a_reply_with_a_token_that_the_policy_does_not_know_does_not_end_the_run(begin, caplog) -> None:
    context, material, start = begin(steps=2)
    strangers = Strangers(context.store, context.directory.inbox)
    Reinforcement(replace(context, rollouts=strangers), material, start).run()
    assert [outcome for outcome, _ in ledger(context)["settled"].values()].count("trained") == 8
    (warning,) = [record for record in caplog.records if record.message == "a rollout failed"]
    assert warning.request == Strangers.request
    assert "members.0: token 5: 1000000 is not in the policy's vocabulary of" in warning.detail


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


def test_a_policy_store_that_does_not_answer_is_waited_for(begin, monkeypatch) -> None:
    context, material, start = begin(steps=2)
    path, failures = context.store.versions(context.run)[0].path.parents[1], iter([errno.ESTALE] * 3)

    def iterdir(directory: Path) -> Iterator[Path]:
        if directory.is_relative_to(path) and (number := next(failures, None)) is not None:
            raise OSError(number, os.strerror(number))
        return whole(directory)

    whole = Path.iterdir
    shelf = LocalShelf(path, patience_s=0, until=context.stop)
    reinforcement = Reinforcement(replace(context, store=PolicyStore(shelf)), material, start)
    monkeypatch.setattr(Path, "iterdir", iterdir)
    reinforcement.run()
    assert next(failures, None) is None
    assert [r["step"] for r in context.directory.records() if r["kind"] == "step"] == [1, 2]
