"""A run over a mixture: each request carries the version of its own question's graph."""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry

from kbqa.datasets.records import write_questions
from kbqa.errors import DatasetError, RunError
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.recipes import recipe_from
from kbqa.runs.context import Context
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.executor import Patience, RolloutExecutor
from kbqa.runs.journal import Journal
from kbqa.runs.local import LocalSource
from kbqa.runs.phases import prepare
from kbqa.runs.reinforcement import Reinforcement
from kbqa.runs.student import Student
from kbqa.runs.training import train
from kbqa.serving.engine import Engine
from kbqa.serving.hosting import InProcess
from kbqa.telemetry.metrics import Metrics
from kbqa.trajectory import Hop, Question
from kbqa.wire import FailureReason, Purpose
from tests.unit.runs.reinforced import Killed, Workers

MIXTURE = "0.75*films.jsonl+0.25*towns.jsonl"
# Many films, few towns.
SIZES = {"films": 40, "towns": 20}
RELATIONS = {"films": "directed by", "towns": "lies in"}
TRIPLES = {kg: [(f"{kg} {n}", RELATIONS[kg], f"{kg} x{n % 7}") for n in range(SIZES[kg])] for kg in SIZES}


@pytest.fixture
def data(tmp_path):
    """Two files of questions, about a graph each."""
    for kg, triples in TRIPLES.items():
        questions = [
            Question(f"q{n}", f"what of {topic} ?", (answer,), (topic,), kg, path=(Hop(relation),))
            for n, (topic, relation, answer) in enumerate(triples)
        ]
        write_questions(tmp_path / f"{kg}.jsonl", questions)
    return tmp_path


@pytest.fixture(scope="module")
def tools():
    return LocalGraphTools(FixedGraphs({kg: OxigraphStore.from_triples(TRIPLES[kg]) for kg in TRIPLES}))


@pytest.fixture
def make_executor(tools):
    opened = []

    def make(store: PolicyStore) -> RolloutExecutor:
        opened.append(Engine(store, Metrics(CollectorRegistry()), InProcess(16)))
        return RolloutExecutor(opened[-1], tools, Patience(60, 60, 60), "here")

    yield make
    for engine in opened:
        engine.close()


@pytest.fixture
def small(tiny_recipe):
    tiny_recipe["schedule"].update(steps=2, questions_per_step=4, max_in_flight=4, max_staleness=0)
    tiny_recipe["cold_start"].update(steps=2, demonstrations=6, validate_every=2)
    return tiny_recipe


@pytest.fixture
def make_context(data, tools, small):
    def make(rollouts=Workers, tools=tools, dataset=MIXTURE, **limits: int) -> Context:
        limits = SplitLimits(**{"validation": 2, "test": 4, **limits})
        directory = Runs(data / "runs").create(recipe_from(small), dataset, limits, 1)
        store = PolicyStore(data / "policies")
        return Context(
            directory=directory,
            record=directory.read(),
            recipe=directory.read().resolved_recipe(),
            home=data,
            store=store,
            tools=tools,
            journal=Journal(directory),
            rollouts=rollouts(store, directory.inbox),
            stop=threading.Event(),
            data=data,
        )

    return make


@pytest.fixture
def begin(make_context):
    """A run whose rl phase is about to begin from random weights."""

    def begin():
        context = make_context(train=8)
        material = prepare(context)
        assert context.recipe.small_policy is not None
        texts = [question.text for question in material.questions.train]
        student = Student.fresh(context.recipe.small_policy.build(), texts, ["<think>"], seed=1)
        return context, material, context.publish(student, 0, {})

    return begin


def test_a_run_asks_every_graph_under_its_own_version(make_context, make_executor, tools):
    versions = {graph.name: graph.version for graph in tools.graphs()}
    assert len(set(versions.values())) == 2
    asked, failed = [], []

    def played(store, _):
        executor = make_executor(store)

        def execute(request):
            reply = executor.execute(request)
            asked.append(request)
            failed.append(reply.failure)
            return reply

        return LocalSource(execute, 4)

    context = make_context(played)
    train(context)
    assert set(failed) == {None}
    assert all(request.kg_version == versions[request.question.kg] for request in asked)
    assert {(request.purpose, request.question.kg) for request in asked} == {
        (purpose, kg) for purpose in Purpose for kg in versions
    }
    summary = json.loads(context.directory.summary_path.read_text())
    assert (summary["dataset"], summary["questions"]) == (MIXTURE, 4)
    for phase, f1 in summary["f1"].items():
        by_part = summary["f1_by_part"][phase]
        assert by_part.keys() == {"films.jsonl", "towns.jsonl"}
        assert f1 == pytest.approx(sum(by_part.values()) / 2)  # of two questions each
    assert {
        json.loads(line)["demonstration"]["question"]["kg"]
        for line in context.directory.demonstrations_path.read_text().splitlines()
    } == {"films", "towns"}


def test_a_graph_that_has_changed_is_found_by_the_requests_about_it(make_context, make_executor):
    """Only the part whose graph was replaced is refused."""
    context = make_context()
    material = prepare(context)
    versions = context.kg_versions(material.kgs)
    make = context.request(Purpose.TRAIN, versions | {"towns": "another"})
    version = context.publish(
        Student.fresh(context.recipe.small_policy.build(), ["a"], ["<think>"], seed=1), 0, {}
    )
    executor, reasons = make_executor(context.store), {}
    for kg in versions:
        question = next(question for question in material.questions.train if question.kg == kg)
        reply = executor.execute(make(f"t-{kg}", question, version.number))
        reasons[kg] = reply.failure and reply.failure.reason
    assert reasons == {"films": None, "towns": FailureReason.GRAPH_CHANGED}


def test_limits_take_equally_many_of_every_part(make_context):
    material = prepare(make_context(train=10, validation=2, test=4))
    for split, size in (("train", 10), ("validation", 2), ("test", 4)):
        counts = Counter(question.part for question in getattr(material.questions, split))
        assert counts == {"films.jsonl": size // 2, "towns.jsonl": size // 2}


def test_a_single_part_has_no_figures_by_part(make_context):
    context = make_context(dataset="films.jsonl")
    train(context)
    assert "f1_by_part" not in json.loads(context.directory.summary_path.read_text())
    assert not any("f1_by_part" in record for record in context.directory.records())


def test_a_graph_that_is_missing_is_named_before_anything_begins(make_context):
    alone = LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES["films"])}))
    context = make_context(tools=alone)
    with pytest.raises(RunError, match=r'graph "towns" of data set .* run kbqa kg load towns FILE'):
        train(context)
    assert context.rollouts.asked == []


def test_a_part_without_questions_for_the_recipe_is_refused(make_context, data, small):
    small["questions"] = {"max_answers": 1}
    records = [json.loads(line) for line in (data / "towns.jsonl").read_text().splitlines()]
    several = [json.dumps(record | {"answers": ["this", "that"]}) for record in records]
    (data / "towns.jsonl").write_text("\n".join(several))
    with pytest.raises(DatasetError, match=r"no train questions of its part towns.jsonl"):
        prepare(make_context())


def whole(data, kg, **changes):
    """A directory of published files without validation questions."""
    records = [json.loads(line) | changes for line in (data / f"{kg}.jsonl").read_text().splitlines()]
    directory = data / "own"
    directory.mkdir()
    for part, some in (("train", records[:-4]), ("test", records[-4:])):
        lines = (json.dumps(record | {"id": f"{part}-{record['id']}"}) for record in some)
        (directory / f"{part}.jsonl").write_text("\n".join(lines))
    return len(records) - 4


def test_a_run_without_validation_questions_takes_some_out_of_training_and_says_so(make_context, data):
    count = whole(data, "films")
    context = make_context(dataset="own", validation=3)
    questions = prepare(context).questions
    assert (len(questions.train), len(questions.validation), len(questions.test)) == (count - 3, 3, 4)
    held_out = {question.id for question in questions.validation}
    assert held_out.isdisjoint(question.id for question in (*questions.train, *questions.cold_start))
    assert context.journal.results["validation_from_train"] == 3


def test_a_run_whose_graph_has_none_of_the_gold_answers_is_refused_with_the_counts(make_context, data):
    whole(data, "films", answers=["m.0none"])
    with pytest.raises(DatasetError, match=r'own: the graph "films" has none of its gold answers \(1 were'):
        prepare(make_context(dataset="own"))


def test_a_mixture_is_drawn_by_its_shares_and_a_resumed_run_goes_on_in_the_same_order(begin):
    context, material, start = begin()
    Reinforcement(context, material, start).run()
    undisturbed = trained_on(context)
    # The run is one epoch long. Half of its eight questions are films, and these have 75 % of the places.
    assert Counter(id_.partition("/")[0] for id_ in undisturbed.values()) == {
        "films.jsonl": 6,
        "towns.jsonl": 2,
    }

    context, material, start = begin()
    context.rollouts.killed_at = 4 + 2
    with pytest.raises(Killed):
        Reinforcement(context, material, start).run()
    Reinforcement(context, material, start).run()
    assert trained_on(context) == undisturbed


def trained_on(context: Context) -> dict[str, str]:
    """Request → question."""
    return {key: id_ for key, id_ in context.rollouts.questions.items() if key.startswith("t")}
