"""A run needs its graph, and says what to do when it is not there."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.errors import RunError
from kbqa.kg.client import HttpGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.runs.context import Context, Stopped
from kbqa.runs.directory import RunRecord, SplitLimits
from kbqa.wire import FailureReason, RolloutFailure


@pytest.fixture
def make_context():
    opened = []

    def make(url: str, stop: threading.Event | None = None, store: PolicyStore | None = None) -> Context:
        record = RunRecord(
            id="r1", recipe={}, dataset="world", limits=SplitLimits(), seed=1, created_at="2026-01-01"
        )
        unused = dict.fromkeys(("directory", "recipe", "journal", "rollouts"))
        opened.append(HttpGraphTools(url))
        return Context(
            **unused,
            record=record,
            store=store,
            home=Path("var"),
            graph_wait_s=0.2,
            tools=opened[-1],
            stop=stop or threading.Event(),
        )

    yield make
    for tools in opened:
        tools.close()


def test_a_loaded_graph_has_a_version(make_context, graph_server) -> None:
    context = make_context(graph_server.url)
    assert context.kg_versions(["world", "world"]) == {"world": context.tools.graphs()[0].version}


def test_a_graph_that_is_not_loaded_is_an_error_that_says_how_to_load_it(make_context, graph_server) -> None:
    with pytest.raises(RunError, match="kbqa kg load mars FILE"):
        make_context(graph_server.url).kg_versions(["world", "mars"])


def test_kg_server_is_waited_for_but_not_for_ever(make_context) -> None:
    with pytest.raises(RunError, match="does not answer"):
        make_context("http://127.0.0.1:1").kg_versions(["world"])


@pytest.mark.parametrize(("in_flight", "at_a_time"), [(4, 32), (16, 64), (3200, 3200)])
def test_an_evaluation_keeps_as_many_workers_busy_as_training(
    make_context, graph_server, monkeypatch, in_flight, at_a_time
) -> None:
    asked = []

    class Asked(Exception):
        """Enough is known."""

    def evaluator(*_: object, max_in_flight: int, **__: object) -> None:
        asked.append(max_in_flight)
        raise Asked

    monkeypatch.setattr("kbqa.runs.context.Evaluator", evaluator)
    schedule = {"schedule.max_in_flight": in_flight, "schedule.questions_per_step": 4}
    recipe = load_recipe("kg-r1-chooser", {**schedule, "rollout.n": 8})
    context = replace(make_context(graph_server.url), recipe=recipe)
    with pytest.raises(Asked):
        context.evaluate(None, (), "validation")
    assert asked == [at_a_time]


def test_stopping_ends_the_wait(make_context) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        make_context("http://127.0.0.1:1", stop).kg_versions(["world"])


def failure(reason: FailureReason) -> RolloutFailure:
    return RolloutFailure(reason=reason, detail="why")


def test_a_version_is_damaged_only_if_the_trainer_finds_it_damaged_too(make_context, store, publish) -> None:
    context = make_context("http://127.0.0.1:1", store=store)
    version = publish("r1", 1)
    context.look(failure(FailureReason.VERSION_REFUSED), {})
    (version.path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(RunError, match=f"{version.id} of run r1 is damaged.*model.safetensors.*resume"):
        context.look(failure(FailureReason.VERSION_REFUSED), {})


def test_a_graph_has_changed_only_if_it_has_for_the_trainer_too(make_context, graph_server) -> None:
    context = make_context(graph_server.url)
    context.look(failure(FailureReason.GRAPH_CHANGED), context.kg_versions(["world"]))
    with pytest.raises(RunError, match="the graph world changed from version 0123456789ab to"):
        context.look(failure(FailureReason.GRAPH_CHANGED), {"world": "0123456789ab"})


def test_a_graph_that_does_not_answer_proves_nothing(make_context) -> None:
    context = make_context("http://127.0.0.1:1")
    context.look(failure(FailureReason.GRAPH_CHANGED), {"world": "0123456789ab"})


def test_new_weights_are_drawn_with_the_seed_of_the_recipe_or_of_the_run(make_context, graph_server) -> None:
    context = make_context(graph_server.url)
    for own, expected in ((None, 1), (7, 7)):
        recipe = load_recipe("kg-r1-chooser", {"weights_seed": own})
        assert replace(context, recipe=recipe).weights_seed == expected
