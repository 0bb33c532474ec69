"""A lesson in this process, on a tiny graph and encoder, and lessons that die."""

from __future__ import annotations

import json
import shutil
import signal

import pytest

from kbqa.corrections import CorrectionRecord
from kbqa.corrections import teaching as room
from kbqa.corrections.judging import Judgement
from kbqa.errors import CorrectionsError, NoPolicyError, RecipeError, RunConflictError
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, State
from kbqa.serving.hosting import open_in_process
from tests.children import Child, play
from tests.unit.corrections.scene import (
    CUT,
    CUT_WRITER,
    POINTS,
    asked,
    begin,
    correction,
    learn,
    learn_and_die,
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    home = tmp_path_factory.mktemp("prepared") / "home"
    begin(home)
    return home


@pytest.fixture
def home(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "home")


@pytest.fixture
def judged(monkeypatch):
    """Lets a test say what both versions answer; a step of so small a policy changes little."""

    def say(judgement, meanwhile=lambda: None):
        monkeypatch.setattr(room, "compare", lambda *_: (meanwhile(), judgement)[1])

    return say


BETTER = Judgement({"corrections": 0.0, "earlier": 0.9}, {"corrections": 1.0, "earlier": 0.9})


def test_a_lesson_leaves_a_version_that_stands_alone_its_run_and_its_record(home):
    store = PolicyStore(home / "policies")
    first = store.promoted()
    taught = learn(home, *map(correction, range(3)), must=(asked("maker", 0),))
    assert CorrectionRecord(home).lessons() == [taught]
    assert (taught.began_with, set(taught.before)) == (f"first/{first.id}", {"corrections", "earlier"})
    assert {(one.id, one.by) for one in taught.corrections} == {(f"c{n}", "ann") for n in range(3)}
    assert store.promoted().run == ("lesson" if taught.promoted else "first")
    version = store.get("lesson", taught.version)
    store.verify(version)
    assert version.manifest.kind == "full"
    assert version.manifest.base_model == first.manifest.base_model
    assert version.recipe() == first.recipe()  # so that the next lesson learns as this one did
    codec = TokenizerCodec.load(version.path)
    open_in_process(version.path, version.manifest, codec, version.id).close()
    run = Runs(home / "runs").get("lesson")
    assert (run.read().state, run.summary_path.exists()) == (State.DONE, True)
    assert run.read().dataset == "0.3*corrections+0.7*earlier"
    left = {path.name for path in (home / "corrections").iterdir()}
    assert left == {"lessons", "lesson.lock", "record.lock"}
    for path in (version.path / "manifest.json", version.path / "recipe.json", run.path / "run.json"):
        assert ".lesson-" not in path.read_text()


def test_a_policy_that_writes_learns_from_rewards(tmp_path):
    store = begin(tmp_path, load_recipe("kg-r1-small", CUT_WRITER))
    cut = {key: value for key, value in CUT.items() if not key.startswith("optimisation.lora")}
    taught = learn(tmp_path, correction(0), cut=cut)
    run = Runs(tmp_path / "runs").get("lesson")
    recipe = run.read().resolved_recipe()
    assert (recipe.cold_start, recipe.rollout.temperature) == (None, 1.5)
    rate = load_recipe("kg-r1-small").optimisation.learning_rate
    assert recipe.optimisation.learning_rate == pytest.approx(0.3 * rate)
    assert run.read().dataset == "0.3*corrections+0.7*earlier"
    assert {record["phase"] for record in run.records() if record["kind"] == "step"} == {"rl"}
    store.verify(store.get("lesson", taught.version))


def test_a_lesson_can_begin_with_what_a_lesson_has_made(home, judged):
    judged(BETTER)
    first, second = learn(home, correction(0)), learn(home, correction(0), correction(1), name="second")
    assert (first.promoted, second.promoted) == (True, True)
    assert second.began_with == first.name
    store, record = PolicyStore(home / "policies"), CorrectionRecord(home)
    assert store.promoted().run == "second"
    record.revoke("ann")
    before = record.untaught(store.promoted(), store)
    assert before is not None
    assert before.run == "first"


def test_nothing_can_be_learned_without_corrections_or_without_a_policy(home, tmp_path):
    with pytest.raises(CorrectionsError, match="no correction was accepted, 0 are set aside"):
        learn(home)
    with pytest.raises(NoPolicyError):
        learn(tmp_path / "empty", correction(0))
    with pytest.raises(RunConflictError, match="run first already exists"):
        learn(home, correction(0), name="first")


def test_wrong_overrides_are_found_before_the_policy_is_asked(home, monkeypatch):
    monkeypatch.setattr(room, "demonstrations", lambda *_: pytest.fail("the policy was asked"))
    with pytest.raises(RecipeError, match=r"cold_start\.steps"):
        learn(home, correction(0), cut={"cold_start.steps": -1})


def test_two_lessons_do_not_go_on_at_once(home, judged):
    said = []

    def begin_another():
        with pytest.raises(CorrectionsError, match="another lesson is going on") as error:
            learn(home, correction(1), name="another")
        said.append(error.value)

    judged(BETTER, begin_another)
    assert learn(home, correction(0)).promoted
    assert said


def test_what_is_taken_back_while_it_is_learned_is_not_promoted(home, judged):
    judged(BETTER, lambda: CorrectionRecord(home).revoke("ann"))
    lesson = learn(home, correction(0))
    assert (lesson.promoted, lesson.reason) == (False, "corrections by ann were taken back meanwhile")
    assert PolicyStore(home / "policies").promoted().run == "first"


def test_a_promotion_by_somebody_else_is_not_undone(home, judged):
    store = PolicyStore(home / "policies")
    other = store.versions("first")[0]
    judged(BETTER, lambda: store.promote("first", other.id))
    lesson = learn(home, correction(0))
    assert (lesson.promoted, lesson.reason) == (False, "another version was promoted meanwhile")
    assert store.promoted() == other


@pytest.mark.parametrize("point", POINTS)
def test_a_lesson_that_dies_leaves_the_promoted_version_and_the_next_one_begins_anew(home, point):
    before = (home / "policies" / "promoted.json").read_bytes()
    assert play(Child(target=learn_and_die, args=(home, point))) == [-signal.SIGKILL]
    assert (home / "policies" / "promoted.json").read_bytes() == before
    store = PolicyStore(home / "policies")
    store.verify(store.promoted())
    assert learn(home, correction(0), correction(1)) in CorrectionRecord(home).lessons()
    assert not list((home / "corrections").glob(".lesson-*"))
    for run in (home / "runs").iterdir():
        assert json.loads((run / "run.json").read_bytes())["state"] != "running" or run.name == "first"
