"""The rl phase after a stop, a death or a change: what it goes on from."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from kbqa.errors import LeaseLostError, RunError
from kbqa.policy_store.durable import remove_directory
from kbqa.runs.context import Stopped
from kbqa.runs.reinforcement import Reinforcement
from tests.unit.runs.reinforced import TOKENS, Killed, ledger, records


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


@pytest.mark.parametrize(
    ("place", "number"),
    [
        pytest.param("check", 4, id="while replies are awaited or learned from"),
        pytest.param("_publish", 2, id="before a version"),
        pytest.param("_checkpoint", 3, id="before a checkpoint"),
    ],
)
def test_who_has_lost_the_lease_publishes_and_saves_nothing_more(begin, place, number) -> None:
    context, material, start = begin(steps=4, checkpoint_every=1)
    calls, found = list[str](), list[object]()

    def there() -> object:
        versions = [version.id for version in context.store.versions(context.run)]
        return versions, sorted(path.name for path in context.directory.checkpoints_path.glob("step-*"))

    def fence() -> None:
        calls.append(caller := inspect.stack()[1].function)
        if caller == place and calls.count(place) == number:
            reinforcement._checkpoints.wait()  # what was begun before
            found.append(there())
        if found:
            raise LeaseLostError("trainer b-2 trains the runs now")

    reinforcement = Reinforcement(replace(context, fence=fence), material, start)
    with pytest.raises(LeaseLostError):
        reinforcement.run()
    reinforcement._checkpoints.wait()
    assert len(found[0][0]) > 1
    assert there() == found[0]
