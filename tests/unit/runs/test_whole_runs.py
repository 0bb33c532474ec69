"""A run through all its phases, with replies made by hand; and what is not done twice."""

from __future__ import annotations

import copy
import json
import threading

import pytest

from kbqa.errors import DatasetError, RunError
from kbqa.kg.client import HttpGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.recipes import recipe_from
from kbqa.runs.context import Context, Stopped
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits
from kbqa.runs.journal import Journal
from kbqa.runs.phases import prepare
from kbqa.runs.training import train
from tests.unit.runs.reinforced import Killed, Workers

FEW = SplitLimits(train=8, validation=2, test=3)


@pytest.fixture
def graphs(graph_server):
    with HttpGraphTools(graph_server.url) as tools:
        yield tools


@pytest.fixture
def small(tiny_recipe) -> dict:
    values = copy.deepcopy(tiny_recipe)
    values["schedule"].update(steps=2, questions_per_step=2, max_in_flight=2, validate_every=2)
    values["cold_start"].update(steps=2, demonstrations=4, validate_every=2)
    values["small_policy"]["warm_up"]["steps"] = 10
    return values


@pytest.fixture
def begin(tmp_path, graphs):
    """`begin(recipe)`: a new run; `begin(directory=…)`: the same one again, in another process."""

    def begin(values=None, limits=FEW, directory: RunDirectory | None = None, workers=Workers) -> Context:
        if directory is None:
            directory = Runs(tmp_path / "runs").create(recipe_from(values), "world", limits, 1)
        record = directory.read()
        store = PolicyStore(tmp_path / "policies")
        return Context(
            directory=directory,
            record=record,
            recipe=record.resolved_recipe(),
            home=tmp_path,
            store=store,
            tools=graphs,
            journal=Journal(directory),
            rollouts=workers(store, directory.inbox),
            stop=threading.Event(),
        )

    return begin


def phases(directory: RunDirectory) -> list[str]:
    return list(dict.fromkeys(record["phase"] for record in directory.records()))


def test_a_run_goes_from_nothing_to_its_summary(begin, small):
    context = begin(small)
    train(context)
    summary = json.loads(context.directory.summary_path.read_text())
    assert summary["f1"] == {"base": 1.0, "cold_start": 1.0, "rl": 1.0}
    assert (summary["split"], summary["questions"]) == ("test", 3)
    assert (summary["dataset"], summary["seed"], summary["run"]) == ("world", 1, context.run)
    versions = context.journal.results["versions"]
    assert len(set(versions.values())) == 3
    for phase, version in versions.items():
        judged = context.directory.judged.read(phase)
        assert (judged.header.version, judged.header.split) == (version, "test")
        assert [one.components["f1"] for one in judged.questions] == [1.0] * 3
        assert all(" : " in one.cluster and not one.turns for one in judged.questions)
    assert summary["policy"] == versions["rl"] == context.store.newest(context.run).id
    assert {version.manifest.graphs for version in context.store.versions(context.run)} == {("world",)}
    assert phases(context.directory) == ["warm_up", "cold_start", "rl"]
    assert context.directory.progress()["phase"] == "done"
    assert context.directory.inbox.ids() == []


class Impatient(Workers):
    """Stops its run as soon as that asks validation questions, which is during its cold start."""

    stop: threading.Event

    def _answer(self, request) -> None:
        super()._answer(request)
        if "-validation-" in request.request_id:
            self.stop.set()


def test_a_run_that_was_stopped_goes_on_behind_the_phase_that_it_finished(begin, small):
    context = begin(small, workers=Impatient)
    context.rollouts.stop = context.stop
    with pytest.raises(Stopped):
        train(context)
    made = dict(context.journal.results["versions"])
    assert list(made) == ["base"]
    again = begin(directory=context.directory)
    train(again)
    assert again.journal.results["versions"]["base"] == made["base"]
    assert [record["kind"] for record in again.directory.records()].count("demonstrations") == 1
    assert again.directory.summary_path.exists()


def test_without_a_cold_start_reinforcement_begins_with_the_base(begin, small):
    small["cold_start"] = None
    small["small_policy"]["warm_up"] = None
    context = begin(small)
    train(context)
    assert list(context.journal.results["versions"]) == ["base", "rl"]
    assert phases(context.directory) == ["warm_up", "rl"]  # what it is before, too, is looked at


def test_test_questions_may_stay_unseen(begin, small):
    context = begin(small, limits=SplitLimits(train=8, validation=2, test=0))
    material = prepare(context)
    assert (material.judging, len(material.questions.test), len(material.questions.train)) == (
        "validation",
        0,
        8,
    )


def test_a_recipe_that_no_question_suits_is_refused(begin, small, monkeypatch):
    context = begin(small)
    monkeypatch.setattr("kbqa.datasets.splits.Splits.only", lambda splits, suit: type(splits)((), (), (), ()))
    with pytest.raises(DatasetError, match="world has no train questions for this recipe"):
        prepare(context)


def test_a_version_that_cannot_be_written_says_what_to_do(begin, small, monkeypatch):
    context = begin(small)

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(context.store, "publish", full)
    with pytest.raises(RunError, match="no space left on device.*free some disk space"):
        train(context)


class Late(Workers):
    """Answers as the trainer lets through: while there is a summary, every reply counts as late."""

    def _answer(self, request) -> None:
        assert not (self._inbox._directory.parent / "summary.json").exists()
        super()._answer(request)


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_that_dies_behind_its_summary_ends_with_the_same_summary(begin, small, monkeypatch, finished):
    context, finish = begin(small), Journal.finish

    def die(journal: Journal) -> None:
        if finished:
            finish(journal)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "finish", die)
        with pytest.raises(Killed):
            train(context)
    before = json.loads(context.directory.summary_path.read_text())
    again = begin(directory=context.directory, workers=Late)
    train(again)
    after = json.loads(context.directory.summary_path.read_text())
    assert again.directory.progress()["phase"] == "done"
    assert {name: after[name] for name in ("f1", "questions", "run")} == {
        name: before[name] for name in ("f1", "questions", "run")
    }
    assert (after == before) or not finished
    assert bool(again.rollouts.asked) is not finished  # what is done is not judged twice
