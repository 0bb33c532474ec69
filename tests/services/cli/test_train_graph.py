"""`kbqa train --graph`: questions, a run and a judgement, each of them once. Here no run takes any time."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from kbqa.datasets import load_dataset
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits, State
from services.cli import following, train_graph, training
from services.http import background, problem
from tests.chat_server import serve
from tests.unit.datasets.from_graph.test_making import film_facts
from tests.unit.datasets.world.wordnet import lexicon_or_skip

ARGUMENTS = ("train", "--graph", "films", "--count", "150", "--heads", "directed_by=film")


class Trainer:
    """Ends each run as it is told to; a run that is done has published a version."""

    def __init__(self, home):
        self.home, self.ends, self.received = home, [], []
        self.policies = home / "policies"
        self.row = None  # the longest that fits its machine
        self.app = FastAPI()
        self.app.get("/v1/runs")(lambda: {"runs": []})
        self.app.post("/v1/runs", status_code=201)(self.start)
        self.app.get("/v1/runs/{run}")(self.show)
        self.app.get("/v1/runs/{run}/metrics")(lambda run: {"run": run, "last": 0, "records": []})
        self.app.post("/v1/runs/{run}/resume")(self.resume)

    def start(self, body: dict):
        self.received.append(("start", body))
        recipe = load_recipe(body["recipe"], body["overrides"])
        if self.row is not None:
            optimisation = recipe.optimisation.model_copy(update={"token_budget": self.row})
            recipe = recipe.model_copy(update={"optimisation": optimisation})
        limits = SplitLimits(**body["limits"])
        Runs(self.home / "runs").create(recipe, body["dataset"], limits, body["seed"], body["name"])
        return self.end(body["name"])

    def resume(self, run: str):
        self.received.append(("resume", run))
        return self.end(run)

    def end(self, run):
        directory = Runs(self.home / "runs").get(run)
        state = State(self.ends.pop(0) if self.ends else "done")
        directory.write(directory.read().model_copy(update={"state": state}))
        if state is State.DONE:
            version = publish(self.policies, run, "films")
            directory.summary_path.write_text(json.dumps({"policy": version.id}))
        return self.show(run)

    def show(self, run: str):
        if not (self.home / "runs" / run).exists():
            return problem(404, f"no run {run}")
        record = Runs(self.home / "runs").get(run).read()
        view = {"id": run, "state": record.state, "dataset": record.dataset, "error": None, "phase": "done"}
        return view | {"step": 1, "of": 1, "seconds": 1.0, "split": "validation", "f1": {"rl": 0.5}}


def publish(policies, run, *graphs):
    return PolicyStore(policies).publish(
        run,
        1,
        lambda into: (into / "x.txt").write_text(run) and None,
        recipe={"name": "r"},
        recipe_digest="d",
        step=0,
        metrics={},
        graphs=graphs,
    )


@pytest.fixture
def trainer(in_process, tmp_path, monkeypatch):
    """A trainer of this home, in which `films` is loaded."""
    lexicon_or_skip()
    monkeypatch.setattr(following, "_POLL_S", 0.01)
    file = tmp_path / "films.txt"
    file.write_text("".join("|".join(fact) + "\n" for fact in film_facts()), encoding="utf-8")
    assert in_process("kg", "load", "films", str(file))[0] == 0
    served = Trainer(tmp_path / "home")
    with background(served.app) as url:
        monkeypatch.setenv("KBQA_TRAINER_URL", url)
        yield served


@pytest.fixture
def scores(monkeypatch):
    """Run → F1 of its policy on every question; what was asked is kept."""
    found = {"asked": []}

    def answered(version, questions, tools):
        found["asked"].append((version.run, tuple(question.id for question in questions)))
        f1 = SimpleNamespace(value=found.get(version.run, 0.75))
        return [SimpleNamespace(question=question, each=({"f1": f1},)) for question in questions]

    monkeypatch.setattr("kbqa.serving.answering.answered", answered)
    return found


def test_one_command_makes_questions_trains_and_promotes_what_answers_better(
    trainer, scores, in_process, tmp_path
):
    scores["reader"] = 0.5
    code, out, err = in_process(*ARGUMENTS, "--set", "schedule.steps=2")
    assert code == 0, err
    [(_, order)] = trainer.received
    assert order["recipe"] == "reader-sft"
    assert order["overrides"] == {"schedule.steps": 2}
    assert order["limits"] == {"test": 0}  # test questions decide about the promotion alone
    splits = load_dataset(order["dataset"], 1, tmp_path / "home" / "data").splits
    assert len(splits.all) == 150
    assert {question.kg for question in splits.all} == {"films"}
    asked = tuple(question.id for question in splits.test)
    assert scores["asked"] == [("reader", asked), (order["name"], asked)]
    assert not set(asked) & {question.id for question in (*splits.train, *splits.validation)}
    assert PolicyStore(tmp_path / "home" / "policies").promoted().run == order["name"]
    assert "  all: F1 0.500 → 0.750" in out
    shared = {line.split()[0]: line for line in out.splitlines() if " of " in line}
    # No topics with their path are in two parts.
    assert shared["test"].split()[:4] == ["test", str(len(splits.test)), "0", "of"]
    # Repeated, it finds that everything is done.
    code, out, _ = in_process(*ARGUMENTS, "--set", "schedule.steps=2")
    assert (code, "the questions were made before" in out, "answers already" in out) == (0, True, True)
    assert len(trainer.received) == 1
    # Other values of the recipe are another run on the same questions.
    in_process(*ARGUMENTS, "--set", "schedule.steps=3")
    assert [other["dataset"] for _, other in trainer.received] == [order["dataset"]] * 2


def test_a_chat_model_may_reword_the_questions(trainer, scores, in_process, tmp_path, monkeypatch):
    scores["reader"] = 0.5
    for name in ("KBQA_GATEWAY_CHAT_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    code, _, err = in_process(*ARGUMENTS, "--paraphrase-with", "openai:wordy")
    assert (code, "set KBQA_GATEWAY_CHAT_URL (or OPENAI_BASE_URL)" in err) == (2, True)
    with serve() as chat:
        chat.script = lambda body: f"Say, {json.loads(body['messages'][-1]['content'])['question']}"
        monkeypatch.setenv("KBQA_GATEWAY_CHAT_URL", chat.url)
        code, out, err = in_process(*ARGUMENTS, "--paraphrase-with", "openai:wordy")
    assert (code, "questions are in the words of wordy" in out) == (0, True), err
    [(_, order)] = trainer.received
    splits = load_dataset(order["dataset"], 1, tmp_path / "home" / "data").splits
    assert "model:wordy" in {question.wording for question in splits.train}
    # Repeated, the model is asked nothing any more, and without it the questions are others.
    code, out, _ = in_process(*ARGUMENTS, "--paraphrase-with", "openai:wordy")
    assert (code, "the questions were made before" in out) == (0, True)
    in_process(*ARGUMENTS)
    assert trainer.received[-1][1]["dataset"] != order["dataset"]


def test_repeated_it_goes_on_where_it_was_stopped(trainer, scores, in_process, tmp_path):
    scores["reader"] = 0.5
    trainer.ends = ["stopped", "failed"]
    code, out, _ = in_process(*ARGUMENTS)
    assert (code, "was stopped; to continue: repeat this command" in out) == (130, True)
    assert in_process(*ARGUMENTS)[0] == 2
    code, out, _ = in_process(*ARGUMENTS)
    assert (code, "promoted films-" in out) == (0, True)
    run = trainer.received[0][1]["name"]
    assert trainer.received[1:] == [("resume", run)] * 2


def test_what_does_not_answer_better_is_not_promoted(trainer, scores, in_process, tmp_path):
    scores["reader"] = 0.75
    code, out, _ = in_process(*ARGUMENTS)
    assert (code, "not promoted: it does not answer better" in out) == (1, True)
    store = PolicyStore(tmp_path / "home" / "policies")
    before = publish(trainer.policies, "mine", "films")
    store.promote("mine", before.id)
    scores["mine"] = 0.7
    assert in_process(*ARGUMENTS)[0] == 0  # it answers better than what answers about this graph
    assert scores["asked"][-2][0] == "mine"
    assert store.promoted().run == trainer.received[0][1]["name"]


@pytest.mark.parametrize(
    ("graphs", "told"), [(("books", "films"), "answers about books"), ((), "answers about every graph")]
)
def test_what_answers_about_other_graphs_is_not_replaced(graphs, told, trainer, scores, in_process, tmp_path):
    scores |= {"reader": 0.5, "other": 0.5}
    store = PolicyStore(tmp_path / "home" / "policies")
    store.promote("other", publish(trainer.policies, "other", *graphs).id)
    code, out, _ = in_process(*ARGUMENTS)
    assert (code, told in out) == (1, True)
    assert store.promoted().run == "other"


@pytest.mark.parametrize(
    ("graph", "facts", "told"),
    [
        ("mars", "", 'no graph named "mars"'),
        ("tiny", "Heat|directed by|Michael Mann\n", "the graph is too small to train on"),
        ("codes", "a|P57|b\nc|P58|d\n", "load it with labels of its relations"),
    ],
)
def test_a_graph_that_gives_no_questions_is_refused_before_a_run(
    graph, facts, told, trainer, in_process, tmp_path
):
    if facts:
        (tmp_path / "facts.txt").write_text(facts)
        assert in_process("kg", "load", graph, str(tmp_path / "facts.txt"))[0] == 0
    code, _, err = in_process("train", "--graph", graph)
    assert (code, told in err) == (2, True), err
    assert trainer.received == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--graph", "films", "--dataset", "world"), "give one of"),
        (
            ("--dataset", "world", "--heads", "directed_by=film"),
            "--heads makes questions: give it with --graph",
        ),
        (("--dataset", "world", "--count", "200"), "--count makes questions: give it with --graph"),
        (("--resume", "mine", "--set", "schedule.steps=1"), "--set is for a new run"),
        (("--resume", "mine", "--recipe", "kg-r1-chooser"), "--recipe is for a new run"),
        (("--graph", "films", "--recipe", "nope"), 'no recipe named "nope"'),
        (("--graph", "films", "--heads", "film"), "RELATION=NOUN"),
        (("--graph", "films", "--count", "0"), "Invalid value for '--count'"),
        (("--graph", "films", "--limit", "tset=0"), "--limit tset: write train=N, validation=N or test=N"),
        (("--graph", "films", "--limit", "train=few"), "--limit train: write train=N"),
        (("--graph", "films", "--name", "My Films"), '--name "My Films": use up to 64 small letters'),
        (("--graph", "films", "--trainer", "http://gpu-1:8003"), "http://gpu-1:8003 is on another"),
        (("--graph", "films", "--trainer", "http://127.0.0.1:1"), "no trainer answers at http://127.0.0.1:1"),
        (("--graph", "films", "--home", __file__), "is a file"),
    ],
)
def test_options_that_do_not_fit_say_what_to_write(arguments, told, in_process):
    code, _, err = in_process("train", *arguments)
    assert (code, told in err) == (2, True), err


def test_a_run_of_that_name_on_other_questions_is_left_alone(trainer, scores, in_process):
    scores["reader"] = 0.5
    assert in_process(*ARGUMENTS, "--name", "mine")[0] == 0
    trainer.ends = ["stopped"]
    code, _, err = in_process(*ARGUMENTS[:-2], "--seed", "2", "--name", "mine")
    assert (code, "choose another --name" in err) == (2, True), err


def test_a_run_of_that_name_that_learns_otherwise_is_left_alone(trainer, scores, in_process):
    scores["reader"] = 0.5
    assert in_process(*ARGUMENTS, "--name", "mine")[0] == 0
    for other, told in (
        (("--set", "schedule.steps=3"), "another recipe"),
        (("--limit", "train=50"), "other limits"),
    ):
        code, _, err = in_process(*ARGUMENTS, "--name", "mine", *other)
        assert (code, f"run mine was begun with {told}" in err) == (2, True), err
    assert len(trainer.received) == 1


def test_a_run_whose_rows_the_trainer_has_shortened_goes_on(trainer, scores, in_process):
    scores["reader"] = 0.5
    trainer.row, trainer.ends = 512, ["stopped"]
    assert in_process(*ARGUMENTS, "--name", "mine")[0] == 130
    code, _, err = in_process(*ARGUMENTS, "--name", "mine")
    assert (code, err) == (0, "")
    assert trainer.received[1:] == [("resume", "mine")]


def test_a_trainer_of_another_home_is_found_out_before_it_trains(trainer, scores, in_process, tmp_path):
    trainer.home, trainer.stopped = tmp_path / "elsewhere", []
    trainer.app.post("/v1/runs/{run}/stop")(lambda run: trainer.stopped.append(run) or {})
    trainer.ends = ["running"]
    code, _, err = in_process(*ARGUMENTS)
    assert (code, "does not use" in err, "--home" in err) == (2, True, True), err
    assert trainer.stopped == [trainer.received[0][1]["name"]]
    assert in_process(*ARGUMENTS)[0] == 2  # repeated, it does not follow that run
    assert len(trainer.received) == 1


def test_a_view_is_trained_on_like_a_graph(trainer, scores, in_process, tmp_path):
    scores["reader"] = 0.5
    assert (
        in_process("kg", "view", "films", "all", *(f"--relation={fact[1]}" for fact in film_facts()))[0] == 0
    )
    code, _, err = in_process(*("films@all" if word == "films" else word for word in ARGUMENTS))
    assert code == 0, err
    [(_, order)] = trainer.received
    questions = load_dataset(order["dataset"], 1, tmp_path / "home" / "data").splits.all
    assert {question.kg for question in questions} == {"films@all"}


def test_a_trainer_of_its_own_publishes_where_the_result_is_looked_for(
    trainer, scores, in_process, tmp_path, monkeypatch
):
    """In `--store`, if it is given; the trainer is started with what the command knows."""
    scores["reader"] = 0.5
    url, nobody = os.environ["KBQA_TRAINER_URL"], "http://127.0.0.1:1"

    class Stack(nullcontext):
        urls = {"trainer": url}

        def __init__(self, home, *, environment, **_):
            super().__init__(self)
            trainer.policies = Path(environment.get("KBQA_POLICY_STORE", home / "policies"))

        def wait_ready(self, within_s):
            pass

    monkeypatch.setattr(training, "Stack", Stack)
    for module in (training, train_graph):
        monkeypatch.setattr(module, "DEFAULT_TRAINER", nobody)
    shelf = tmp_path / "shelf"
    for options, published in (((), tmp_path / "home" / "policies"), (("--store", str(shelf)), shelf)):
        name = f"in-{published.name}"
        code, out, err = in_process(*ARGUMENTS, "--name", name, *options, KBQA_TRAINER_URL=nobody)
        assert (code, "starting one" in out) == (0, True), err
        assert PolicyStore(published).promoted().run == name


def test_where_data_sets_cannot_be_written_it_is_said_before_questions_are_made(
    trainer, in_process, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KBQA_DATA", str(tmp_path / "file"))
    code, out, err = in_process(*ARGUMENTS)
    assert (code, "cannot be written" in err, "set KBQA_DATA to" in err) == (2, True, True), err
    assert "questions" not in out


def test_examples_that_cannot_be_written_cost_no_questions(trainer, scores, in_process, tmp_path):
    scores["reader"] = 0.5
    (tmp_path / "home" / "examples").write_text("in the way")
    code, _, err = in_process(*ARGUMENTS)
    assert (code, "no examples are shown: examples cannot be written" in err) == (0, True), err
    assert len(trainer.received) == 1
