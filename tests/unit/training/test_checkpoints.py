"""A checkpoint is whole and verified, or passed over."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from kbqa.errors import CheckpointError
from kbqa.training.checkpoints import Checkpoints


class Tied(nn.Module):
    """Two names for one tensor, as in a language model with tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4, bias=False)
        self.head = nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight


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
    Checkpoints(tmp_path, "r").save(3, model, optimiser, {"ledger": {"t1": ["trained", 3]}})
    expected = one_more_step(model, optimiser)

    other, other_optimiser = trained(2)
    checkpoint = Checkpoints(tmp_path, "r").restore(other, other_optimiser)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.state) == (3, {"ledger": {"t1": ["trained", 3]}})
    assert other.head.weight is other.embed.weight
    assert torch.equal(one_more_step(other, other_optimiser), expected)


def test_without_checkpoints_nothing_is_restored(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    before = model.embed.weight.detach().clone()
    assert Checkpoints(tmp_path / "none", "r").restore(model, optimiser) is None
    assert torch.equal(model.embed.weight, before)


def test_the_newest_are_kept_and_one_step_is_saved_once(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r", keep=2)
    for step in (5, 10, 15, 15):
        checkpoints.save(step, model, optimiser, {"at": step})
    assert checkpoints.steps() == [10, 15]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_what_a_kept_checkpoint_needs_is_kept_with_it(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r", keep=2)
    for step, best in ((5, 5), (10, 5), (15, 5), (20, 20)):
        checkpoints.save(step, model, optimiser, {}, needs=[best])
    assert checkpoints.steps() == [5, 15, 20]  # 15 may have to be gone back to, and its best is 5
    checkpoints.save(25, model, optimiser, {}, needs=[20])
    assert checkpoints.steps() == [20, 25]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "model.safetensors").write_bytes(b"x"),
        lambda path: (path / "optimiser.safetensors").unlink(),
        lambda path: (path / "state.json").write_text("{}"),
        lambda path: (path / "manifest.json").write_text("{"),
        lambda path: (path / "manifest.json").unlink(),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(tmp_path: Path, damage) -> None:
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r")
    checkpoints.save(5, model, optimiser, {"at": 5})
    checkpoints.save(10, model, optimiser, {"at": 10})
    damage(tmp_path / "step-000010")
    checkpoint = checkpoints.restore(model, optimiser)
    assert checkpoint is not None
    assert checkpoint.step == 5
    damage(tmp_path / "step-000005")
    with pytest.raises(CheckpointError):
        checkpoints.restore(model, optimiser)


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    Checkpoints(tmp_path, "theirs").save(1, model, optimiser, {})
    with pytest.raises(CheckpointError, match="belongs to run theirs, not ours"):
        Checkpoints(tmp_path, "ours").restore(model, optimiser)


def test_a_checkpoint_holds_nothing_that_could_be_executed(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    Checkpoints(tmp_path, "r").save(1, model, optimiser, {})
    files = sorted(path.name for path in (tmp_path / "step-000001").iterdir())
    assert files == ["manifest.json", "model.safetensors", "optimiser.safetensors", "state.json"]


def test_one_of_an_older_kbqa_says_so(tmp_path: Path) -> None:
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r")
    checkpoints.save(1, model, optimiser, {})
    path = tmp_path / "step-000001" / "manifest.json"
    path.write_text(json.dumps({"run": "r", "step": 1, "files": {}}))
    with pytest.raises(CheckpointError, match="written by another version of kbqa"):
        checkpoints.restore(model, optimiser)


def test_weights_of_another_shape_are_refused_before_anything_is_changed(tmp_path: Path) -> None:
    Checkpoints(tmp_path, "r").save(1, *trained(1), {})
    other = nn.Module()
    other.embed = nn.Linear(3, 5, bias=False)
    before = other.embed.weight.detach().clone()
    with pytest.raises(CheckpointError, match=r"embed.weight has the shape \(4, 3\)"):
        Checkpoints(tmp_path, "r").restore(other, torch.optim.AdamW(other.parameters()))
    assert torch.equal(other.embed.weight, before)


def test_what_is_frozen_is_not_in_it(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 1, bias=False))
    model[0].weight.requires_grad_(False)
    optimiser = torch.optim.AdamW(model[1].parameters(), lr=0.1)
    model(torch.ones(1, 64)).sum().backward()
    optimiser.step()
    Checkpoints(tmp_path, "r").save(1, model, optimiser, {})
    assert set(load_file(tmp_path / "step-000001" / "model.safetensors")) == {"1.weight"}
    saved = model[1].weight.detach().clone()
    with torch.no_grad():
        model[1].weight.zero_()
    Checkpoints(tmp_path, "r").load_weights(1, model)
    assert torch.equal(model[1].weight, saved)
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 2 \(there are: 1\)"):
        Checkpoints(tmp_path, "r").load_weights(2, model)


_ON_A_FULL_DISK = """
import resource, sys, torch
from pathlib import Path
from kbqa.errors import CheckpointError
from kbqa.training.checkpoints import Checkpoints

model = torch.nn.Linear(256, 256)
optimiser = torch.optim.AdamW(model.parameters())
checkpoints = Checkpoints(Path(sys.argv[1]), "r")
checkpoints.save(1, model, optimiser, {"at": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # no file may grow beyond that
try:
    checkpoints.save(2, model, optimiser, {"at": 2})
except CheckpointError as error:
    print(error)
print(checkpoints.restore(model, optimiser).state, sorted(p.name for p in Path(sys.argv[1]).iterdir()))
"""


def test_a_full_disk_is_told_and_harms_no_earlier_checkpoint(tmp_path: Path) -> None:
    output = subprocess.run(
        [sys.executable, "-c", _ON_A_FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    refusal, restored = output.splitlines()
    assert refusal.startswith(f"{tmp_path}/step-000002: cannot be written (")
    assert "free some disk space" in refusal
    assert restored == "{'at': 1} ['step-000001']"


def test_what_a_dead_writer_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".aside-dead").mkdir()
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r")
    assert checkpoints.restore(model, optimiser) is None
    checkpoints.save(1, model, optimiser, {})
    assert not (tmp_path / ".aside-dead").exists()
