"""Runs that end with a cold start: an adapter that reads forms, says how sure it is, and can be a base."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from kbqa.datasets import load_dataset
from kbqa.datasets.from_graph import write_splits
from kbqa.datasets.splits import Splits
from kbqa.errors import RecipeError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.in_process import load_model
from kbqa.policy_store.shipped import shipped_reader
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.export import export
from kbqa.runs.local import open_run
from kbqa.runs.student import Student
from kbqa.runs.training import train
from tests.unit.encoders import save_encoder

FEW = SplitLimits(train=20, validation=24, test=0)
LITTLE = {
    "cold_start.demonstrations": 30,
    "cold_start.steps": 4,
    "cold_start.batch": 8,
    "cold_start.validate_every": 2,
    "cold_start.withheld": 0.5,
    "cold_start.graphs": None,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A graph, an encoder, and a run of the recipe `reader` that is over."""
    home = tmp_path_factory.mktemp("home")
    encoder = save_encoder(home / "encoder", words=("that", "this", "those"))
    with closing(GraphCatalog(home)) as catalog:
        graph = load_dataset("world-all", 1).graph
        catalog.load(graph.name, graph.as_file(home))
    run(home, load_recipe("reader", {**LITTLE, "base_model": str(encoder)}), "reader")
    return home


def run(home, recipe, name, limits=FEW):
    directory = Runs(home / "runs").create(recipe, "world-all", limits, 1, name)
    with closing(GraphCatalog(home)) as catalog, open_run(directory, LocalGraphTools(catalog)) as context:
        train(context)
        return context


def opened(home):
    directory = Runs(home / "runs").get("reader")
    return directory, json.loads(directory.summary_path.read_text())


def version(home, name="reader"):
    from kbqa.policy_store import open_store

    store = open_store(home)
    found = store.newest(name)
    store.verify(found)
    return found


def test_a_run_may_end_with_its_cold_start(home):
    directory, summary = opened(home)
    assert set(summary["f1"]) == {"base", "cold_start"}
    assert summary["policy"] == version(home).id
    assert "rl" not in {record["phase"] for record in directory.records()}
    assert summary["demonstrations"]["found"] == 30
    assert 0 < summary["demonstrations"]["withheld"] <= 15


def test_its_version_is_an_adapter_that_names_its_base_and_says_how_sure_it_is(home):
    found = version(home)
    assert found.manifest.kind == "lora"
    assert found.manifest.calibration is None or found.manifest.calibration.questions >= 20
    config = json.loads((found.path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(home / "encoder")
    assert sum(file.stat().st_size for file in found.path.glob("*.safetensors")) < 2_000_000


def test_an_adapter_can_be_loaded_and_started_from_like_whole_weights(home):
    found = version(home)
    merged, adapter = load_model(found.path), load_file(found.path / "adapter_model.safetensors")
    start = adapter["base_model.model.head.direction"]
    assert torch.equal(merged.head.direction, start)
    student = Student.pretrained(str(found.path), (), seed=5)
    for name, value in merged.state_dict().items():
        assert torch.equal(student.model.state_dict()[name], value), name


def test_it_is_exported_with_its_adapter_merged_or_separate(home, tmp_path):
    from kbqa.policy_store import open_store

    store, (directory, _) = open_store(home), opened(home)
    export(store, directory, tmp_path / "whole")
    assert torch.equal(
        load_model(tmp_path / "whole").head.direction, load_model(version(home).path).head.direction
    )
    export(store, directory, tmp_path / "apart", adapter=True)
    assert (tmp_path / "apart" / "adapter_config.json").is_file()


def test_reinforcement_learning_begins_with_a_reader(home):
    few = {
        "base_model": str(version(home).path),
        "schedule.steps": 1,
        "schedule.questions_per_step": 2,
        "schedule.max_in_flight": 2,
        "schedule.validate_every": 1,
        "guards.patience": None,
    }
    context = run(home, load_recipe("kg-r1-reader", few), "tuned", SplitLimits(train=8, validation=2, test=0))
    assert set(context.journal.results["versions"]) == {"base", "rl"}
    base = context.version(context.journal.results["versions"]["base"])
    assert torch.equal(load_model(base.path).head.direction, load_model(version(home).path).head.direction)


def test_the_kl_penalty_holds_a_policy_near_the_reader_that_it_begins_with(home):
    two = {
        "base_model": str(version(home).path),
        "rollout.n": 4,
        "schedule.steps": 2,
        "schedule.questions_per_step": 4,
        "schedule.max_in_flight": 4,
        "schedule.max_staleness": 0,
        "schedule.validate_every": 2,
        "optimisation.learning_rate": 0.01,
        "guards.patience": None,
    }
    context = run(home, load_recipe("kg-r1-reader", two), "held", SplitLimits(train=8, validation=2, test=0))
    first, second = (one["kl"] for one in context.directory.records() if one["phase"] == "rl" and "kl" in one)
    assert first == pytest.approx(0.0, abs=1e-6)  # the first step begins with the reader itself
    assert second > 1e-5


@pytest.mark.parametrize(("kl", "validation"), [(0.3, 30), (0.0, 30), (0.0, 2)])
def test_only_who_is_held_near_the_reader_knows_as_much_of_its_searches(home, kl, validation):
    few = {
        "optimisation.kl_coefficient": kl,
        "schedule.steps": 1,
        "schedule.questions_per_step": 2,
        "schedule.max_in_flight": 2,
        "schedule.validate_every": 1,
        "guards.patience": None,
    }
    limits = SplitLimits(train=8, validation=validation, test=0)
    name = f"held-{round(10 * kl)}-{validation}"
    context = run(home, load_recipe("kg-r1-reader", few), name, limits)
    trained = context.version(context.journal.results["versions"]["rl"]).manifest.calibration
    readers = shipped_reader().manifest.calibration
    assert trained.questions == (30 if validation == 30 else readers.questions)
    assert trained.search == (readers.search if kl else None)


@pytest.mark.parametrize("wording", ["template", ""])
def test_made_questions_leave_the_reader_as_sure_as_it_was(home, tmp_path, wording):
    """A policy is as sure of made questions as it has learned to be, and of people's less rightly so."""
    asked = load_dataset("world-all", 1).splits.train[:40]
    splits = Splits((), asked[:10], asked[10:35], asked[35:])
    made = [[replace(one, wording=wording) for one in part] for part in (splits.train, splits.validation)]
    write_splits(replace(splits, train=tuple(made[0]), validation=tuple(made[1])), tmp_path / "data" / "made")
    little = {key: value for key, value in LITTLE.items() if key != "cold_start.graphs"}
    name = f"from-{wording or 'people'}"
    recipe = load_recipe("reader-sft", little)
    directory = Runs(home / "runs").create(recipe, "made", SplitLimits(test=0), 1, name)
    with closing(GraphCatalog(home)) as catalog:
        tools = LocalGraphTools(catalog)
        with open_run(directory, tools, data=tmp_path / "data") as context:
            train(context)
    readers = shipped_reader().manifest.calibration
    assert (version(home, name).manifest.calibration == readers) == (wording == "template")


def test_without_a_cold_start_a_run_needs_a_step():
    with pytest.raises(
        RecipeError, match=r"schedule\.steps: without a cold start there must be at least one"
    ):
        load_recipe("kg-r1-forms", {"schedule.steps": 0})


def test_only_who_may_decline_is_shown_what_is_withheld():
    with pytest.raises(RecipeError, match=r"cold_start\.withheld: needs the protocol form-chooser"):
        load_recipe("reader", {"protocol.may_decline": False})
