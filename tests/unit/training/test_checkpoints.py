"""A checkpoint is whole and verified, or passed over."""

from __future__ import annotations

import json
import random
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from kbqa.errors import CheckpointError, LeaseLostError
from kbqa.training.checkpoints import Checkpoints
from kbqa.training.tensor_files import TrainedTensors
from tests.children import Child, Pipe, play
from tests.unit.training.dying import die_while_replacing, save_on_a_full_disk

SHARD = "shard-00001-model-00001-of-00001.safetensors"


class Tied(nn.Module):
    """Two names for one tensor, as in a language model with tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4, bias=False)
        self.head = nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight


def save(checkpoints: Checkpoints, step: int, model, optimiser, state, **options) -> None:
    checkpoints.save(step, TrainedTensors(model, optimiser), state, **options)
    checkpoints.wait()


def trained(seed: int) -> tuple[Tied, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = Tied()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        model.head(torch.randn(2, 3)).sum().backward()
        optimiser.step()
    return model, optimiser


def one_more_step(model: Tied, optimiser: torch.optim.AdamW) -> torch.Tensor:
    """Depends on weights, moments and every random generator alike."""
    optimiser.zero_grad()
    drawn = torch.randn(2, 3) + random.gauss(0.0, 1.0) + float(np.random.standard_normal())
    model.head(drawn).square().sum().backward()
    optimiser.step()
    return model.embed.weight.detach().clone()


def test_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    save(Checkpoints(tmp_path, "r"), 3, model, optimiser, {"ledger": {"t1": ["trained", 3]}})
    expected = one_more_step(model, optimiser)

    other, other_optimiser = trained(2)
    checkpoint = Checkpoints(tmp_path, "r").restore(TrainedTensors(other, other_optimiser))
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.state) == (3, {"ledger": {"t1": ["trained", 3]}})
    assert other.head.weight is other.embed.weight
    assert torch.equal(one_more_step(other, other_optimiser), expected)


def test_without_checkpoints_nothing_is_restored(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    before = model.embed.weight.detach().clone()
    assert Checkpoints(tmp_path / "none", "r").restore(TrainedTensors(model, optimiser)) is None
    assert torch.equal(model.embed.weight, before)


def test_the_newest_are_kept_and_one_step_is_saved_once(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r", keep=2)
    for step in (5, 10, 15, 15):
        save(checkpoints, step, model, optimiser, {"at": step})
    assert checkpoints.steps() == [10, 15]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_what_a_kept_checkpoint_needs_is_kept_with_it(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r", keep=2)
    for step, best in ((5, 5), (10, 5), (15, 5), (20, 20)):
        save(checkpoints, step, model, optimiser, {}, needs=[best])
    assert checkpoints.steps() == [5, 15, 20]  # 15 may have to be gone back to, and its best is 5
    save(checkpoints, 25, model, optimiser, {}, needs=[20])
    assert checkpoints.steps() == [20, 25]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / SHARD).write_bytes(b"x"),
        lambda path: (path / SHARD).unlink(),
        lambda path: (path / "state.json").write_text("{}"),
        lambda path: (path / "manifest.json").write_text("{"),
        lambda path: (path / "manifest.json").unlink(),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(tmp_path: Path, damage) -> None:
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r")
    save(checkpoints, 5, model, optimiser, {"at": 5})
    save(checkpoints, 10, model, optimiser, {"at": 10})
    damage(tmp_path / "step-000010")
    checkpoint = checkpoints.restore(TrainedTensors(model, optimiser))
    assert checkpoint is not None
    assert checkpoint.step == 5
    damage(tmp_path / "step-000005")
    with pytest.raises(CheckpointError):
        checkpoints.restore(TrainedTensors(model, optimiser))


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    save(Checkpoints(tmp_path, "theirs"), 1, model, optimiser, {})
    with pytest.raises(CheckpointError, match="belongs to run theirs, not ours"):
        Checkpoints(tmp_path, "ours").restore(TrainedTensors(model, optimiser))


def test_a_checkpoint_holds_nothing_that_could_be_executed(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    save(Checkpoints(tmp_path, "r"), 1, model, optimiser, {})
    files = sorted(path.name for path in (tmp_path / "step-000001").iterdir())
    assert files == ["manifest.json", SHARD, "state.json"]


def test_one_of_an_older_kbqa_says_so(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r")
    save(checkpoints, 1, model, optimiser, {})
    path = tmp_path / "step-000001" / "manifest.json"
    path.write_text(json.dumps({"run": "r", "step": 1, "files": {}}))
    with pytest.raises(CheckpointError, match="written by another version of kbqa"):
        checkpoints.restore(TrainedTensors(model, optimiser))


def test_weights_of_another_shape_are_refused_before_anything_is_changed(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path, "r"), 1, *trained(1), {})
    other = nn.Module()
    other.embed = nn.Linear(3, 5, bias=False)
    before = other.embed.weight.detach().clone()
    with pytest.raises(CheckpointError, match=r"embed.weight has the shape \(4, 3\)"):
        Checkpoints(tmp_path, "r").restore(TrainedTensors(other, torch.optim.AdamW(other.parameters())))
    assert torch.equal(other.embed.weight, before)


def test_what_is_frozen_is_not_in_it(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 1, bias=False))
    model[0].weight.requires_grad_(False)
    optimiser = torch.optim.AdamW(model[1].parameters(), lr=0.1)
    model(torch.ones(1, 64)).sum().backward()
    optimiser.step()
    save(Checkpoints(tmp_path, "r"), 1, model, optimiser, {})
    saved = load_file(tmp_path / "step-000001" / SHARD)
    assert set(saved) == {"weight/1.weight", "exp_avg/1.weight", "exp_avg_sq/1.weight", "step/1.weight"}
    saved = model[1].weight.detach().clone()
    with torch.no_grad():
        model[1].weight.zero_()
    Checkpoints(tmp_path, "r").load_weights(1, model)
    assert torch.equal(model[1].weight, saved)
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 2 \(there are: 1\)"):
        Checkpoints(tmp_path, "r").load_weights(2, model)


@pytest.mark.parametrize(
    ("where", "kept"), [("put_in_place", 100), ("remove_directory", "again"), ("checksum", 100)]
)
def test_a_step_that_is_saved_again_has_an_intact_checkpoint_at_any_time(tmp_path: Path, where, kept) -> None:
    assert play(Child(target=die_while_replacing, args=(tmp_path, where))) == [9]
    model = nn.Linear(2, 2)
    tensors = TrainedTensors(model, torch.optim.AdamW(model.parameters()))
    checkpoints = Checkpoints(tmp_path, "r")
    assert checkpoints.steps() == [50, 100]
    restored = checkpoints.restore(tensors)
    assert restored is not None
    assert restored.state == {"at": kept}
    checkpoints.save(150, tensors, {})
    checkpoints.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000100", "step-000150"]


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """What is written is the state of the call, and it is announced only once it is durable."""
    model, optimiser = trained(1)
    expected = model.embed.weight.detach().clone()
    written, durable = Event(), list[bool]()

    class Slow(TrainedTensors):
        def write(self, directory: Path) -> Future[dict[str, str]]:
            found = super().write(directory)
            return ThreadPoolExecutor(1).submit(lambda: written.wait(60) and found.result())

    checkpoints = Checkpoints(tmp_path, "r")
    final = tmp_path / "step-000001"
    checkpoints.save(1, Slow(model, optimiser), {}, on_saved=lambda: durable.append(final.is_dir()))
    one_more_step(model, optimiser)
    assert durable == []
    written.set()
    checkpoints.wait()
    assert durable == [True]
    Checkpoints(tmp_path, "r").load_weights(1, model)
    assert torch.equal(model.embed.weight, expected)


def test_who_has_lost_its_lease_puts_no_checkpoint_in_place(tmp_path: Path) -> None:
    """It was written in the background meanwhile."""
    lost, announced = Event(), list[bool]()

    def fence() -> None:
        if lost.is_set():
            raise LeaseLostError("another trainer is at work")

    checkpoints = Checkpoints(tmp_path, "r", keep=1, fence=fence)
    save(checkpoints, 1, *trained(1), {})
    lost.set()
    with pytest.raises(LeaseLostError):
        save(checkpoints, 2, *trained(2), {}, on_saved=lambda: announced.append(True))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert announced == []


def test_a_full_disk_is_told_and_harms_no_earlier_checkpoint(tmp_path: Path) -> None:
    received, sent = Pipe(duplex=False)
    assert play(Child(target=save_on_a_full_disk, args=(tmp_path, sent))) == [0]
    refusal = received.recv()
    assert refusal.startswith(f"{tmp_path}/step-000002: cannot be written (")
    assert "free some disk space" in refusal
    assert received.recv() == ({"at": 1}, ["step-000001"])


def test_what_a_dead_writer_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".aside-dead").mkdir()
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r")
    assert checkpoints.restore(TrainedTensors(model, optimiser)) is None
    save(checkpoints, 1, model, optimiser, {})
    assert not (tmp_path / ".aside-dead").exists()
