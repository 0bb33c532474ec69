"""The cold start of a run from a file: which demonstrations it takes, and how a model imitates them."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace

import pytest

from kbqa.cold_start.demonstrations import demonstrate
from kbqa.cold_start.files import DemonstrationEntry, write_entries
from kbqa.cold_start.imitation import example
from kbqa.cold_start.mining import blind
from kbqa.datasets import load_dataset
from kbqa.errors import RunError
from kbqa.kg.client import HttpGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.protocols import KgR1
from kbqa.recipes import recipe_from
from kbqa.runs.cold_start import ColdStart, demonstrations
from kbqa.runs.context import Context
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.journal import Journal
from kbqa.runs.phases import prepare
from kbqa.runs.student import Student
from kbqa.trajectory import Hop
from tests.unit.runs.reinforced import Workers


@pytest.fixture
def graphs(graph_server):
    with HttpGraphTools(graph_server.url) as tools:
        yield tools


@pytest.fixture(scope="module")
def splits():
    return load_dataset("world", seed=1).splits


@pytest.fixture
def make_context(tmp_path, tiny_recipe, graphs):
    """A context whose recipe has `changes` to its cold start."""

    def make(**changes: object) -> Context:
        values = copy.deepcopy(tiny_recipe)
        values["cold_start"].update(changes)
        recipe = recipe_from(values)
        directory = Runs(tmp_path / "runs").create(recipe, "world", SplitLimits(), 1)
        store = PolicyStore(tmp_path / "policies")
        return Context(
            directory=directory,
            record=directory.read(),
            recipe=recipe,
            home=tmp_path,
            store=store,
            tools=graphs,
            journal=Journal(directory),
            rollouts=Workers(store, directory.inbox),
            stop=threading.Event(),
        )

    return make


@pytest.fixture
def write(tmp_path, graphs, splits):
    """Writes demonstrations of some questions, under the prompt for a pretrained model."""

    def write(questions, protocol: str = "kg_r1"):
        played = [demonstrate(question, KgR1("full"), graphs, 6) for question in questions]
        entries = [DemonstrationEntry(one, protocol, "gold", "t") for one in played if one is not None]
        write_entries(tmp_path / "cold_start" / "a.jsonl", entries)
        return [entry.demonstration for entry in entries]

    return write


def text(passage) -> str:
    return "".join(segment.text for segment in passage.segments)


def untrue(question):
    """The same question with programs that lead nowhere."""
    return replace(question, path=(Hop("no.such.relation"),), form="(", sparql="{")


def test_mining_sees_no_gold_program_of_any_question(make_context, splits) -> None:
    parts = {name: tuple(map(untrue, getattr(splits, name))) for name in ("cold_start", "train")}
    told, untold = make_context(demonstrations=200), make_context(demonstrations=200)
    found = demonstrations(told, splits)
    assert len(found) > 100  # those of one hop and of two
    assert found == demonstrations(untold, replace(splits, **parts))
    assert {one.question.id.partition("-")[0] for one in found} == {"cold_start", "train"}
    assert told.journal.results["demonstrations"] == {
        "source": "mined paths",
        "found": len(found),
        "recoveries": 0,
        "withheld": 0,
        "gold_programs": 0,
    }


def test_where_paths_are_mined_a_run_learns_from_questions_without_programs(make_context, splits) -> None:
    """What comes after has nothing of a program to read: no lesson, request, curve or curriculum."""
    material = prepare(make_context(demonstrations=20)).questions
    for name in ("cold_start", "train"):
        assert [blind(question) for question in getattr(splits, name)] == list(getattr(material, name))
    assert material.validation == splits.validation  # whose hops evaluations are told apart by
    gold = prepare(make_context(demonstrations=20, paths="gold")).questions
    assert gold == splits


def test_gold_programs_are_named_by_the_journal_where_they_were_used(make_context, write, splits) -> None:
    context = make_context(demonstrations=20, paths="gold")
    found = demonstrations(context, splits)
    told = context.journal.results["demonstrations"]
    assert (told["source"], told["gold_programs"]) == ("gold paths", len(found))
    assert context.directory.records()[-1]["gold_programs"] == len(found)
    write(splits.cold_start[:6])  # by gold programs
    of_a_file = make_context(file="a.jsonl")
    count = len(demonstrations(of_a_file, splits))
    told = of_a_file.journal.results["demonstrations"]
    assert (told["source"], told["gold_programs"]) == ("a.jsonl", count)


def test_demonstrations_are_made_once_in_a_run(make_context, splits) -> None:
    context = make_context(demonstrations=20)
    found = demonstrations(context, splits)
    assert demonstrations(context, replace(splits, cold_start=(), train=())) == found
    assert len([record for record in context.directory.records() if record["kind"] == "demonstrations"]) == 1


def test_a_share_of_the_demonstrations_comes_again_as_recoveries(make_context, splits) -> None:
    gold = demonstrations(make_context(demonstrations=20), splits)
    found = demonstrations(make_context(demonstrations=20, recoveries=0.5), splits)
    recovered = found[len(gold) :]
    assert found[: len(gold)] == gold
    assert 0 < len(recovered) <= round(len(gold) / 2)
    assert all(passage.imitated for one in gold for passage in one.passages)
    assert [[p.imitated for p in one.passages[:4]] for one in recovered] == [[True, False, True, True]] * len(
        recovered
    )
    assert {one.question.id for one in recovered} <= {one.question.id for one in gold}


def test_a_file_is_taken_under_the_recipes_prompt_and_without_held_out_questions(
    make_context, write, splits
) -> None:
    written = write([*splits.cold_start[:6], *splits.test[:3]])
    found = demonstrations(make_context(file="a.jsonl", demonstrations=4), splits)
    assert [one.question for one in found] == [one.question for one in written[:4]]
    everything = demonstrations(make_context(file="a.jsonl"), splits)
    assert not {one.question.text for one in everything} & {question.text for question in splits.test}
    for ours, theirs in zip(everything, written, strict=False):
        assert text(ours.passages[0]) != text(theirs.passages[0])  # brief, where the file's is full
        assert ours.passages[1:] == theirs.passages[1:]


def test_a_file_that_is_not_there_or_does_not_fit_says_what_to_do(make_context, write, splits) -> None:
    with pytest.raises(RunError, match=r"kbqa cold-start world --name a --recipe tiny"):
        demonstrations(make_context(file="a.jsonl"), splits)
    write(splits.test[:3])
    with pytest.raises(RunError, match="all its questions are validation or test questions"):
        demonstrations(make_context(file="a.jsonl"), splits)
    write(splits.cold_start[:3], protocol="kbqa_r1")
    with pytest.raises(RunError, match="in the dialect kbqa_r1, and recipe tiny speaks kg_r1"):
        demonstrations(make_context(file="a.jsonl"), splits)


def test_epochs_of_a_file_train_an_adapter_that_is_published_as_whole_weights(
    make_context, write, splits
) -> None:
    write(splits.cold_start[:6])
    context = make_context(
        file="a.jsonl", steps=None, epochs=2, batch=4, fresh_names=False, lora={"rank": 8}, validate_every=100
    )
    found = demonstrations(context, splits)
    assert context.recipe.small_policy is not None
    texts = [text(passage) for one in found for passage in one.passages]
    student = Student.fresh(
        context.recipe.small_policy.build(), texts, context.recipe.protocol.build().tags, 1
    )
    before = {name: p.clone() for name, p in student.model.named_parameters()}
    section = context.recipe.cold_start
    assert section is not None
    few = replace(splits, validation=splits.validation[:2])
    best, calibration = ColdStart(context, section, few, student).run(found)
    assert calibration is None  # two questions are too few
    assert best.manifest.kind == "full"
    *_, last = context.directory.records()
    assert last["of"] == -(-2 * len(found) // 4)  # two epochs, four a step
    learned = dict(Student.load(best.path).model.named_parameters())
    assert learned.keys() == before.keys()
    changed = {name for name, p in learned.items() if not p.equal(before[name])}
    assert changed
    assert all("proj" in name for name in changed)


def test_demonstrations_that_are_too_long_are_left_out(make_context, write, splits, caplog) -> None:
    write(splits.cold_start[:6])
    context = make_context(file="a.jsonl", max_length=10_000, steps=1, validate_every=1, fresh_names=False)
    found = demonstrations(context, splits)
    assert context.recipe.small_policy is not None
    student = Student.fresh(
        context.recipe.small_policy.build(), ["a b"], context.recipe.protocol.build().tags, 1
    )
    section = context.recipe.cold_start
    assert section is not None
    most = context.recipe.rollout.max_observation_tokens
    lengths = sorted(len(example(one, student.codec, most).token_ids) for one in found)
    assert lengths[0] < lengths[-1]
    few = replace(splits, validation=splits.validation[:1])
    tight = section.model_copy(update={"max_length": lengths[0]})
    ColdStart(context, tight, few, student).run(found)
    [warning] = [record for record in caplog.records if "too long" in record.message]
    assert 0 < warning.count < len(found)
    with pytest.raises(RunError, match="every demonstration has more than 1 tokens"):
        ColdStart(context, section.model_copy(update={"max_length": 1}), few, student).run(found)
