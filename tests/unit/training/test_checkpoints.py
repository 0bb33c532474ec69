"""A checkpoint is whole and verified, or passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
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
    """Depends on weights, moments and the random generator alike."""
    optimiser.zero_grad()
    model.head(torch.randn(2, 3)).square().sum().backward()
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


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "model.safetensors").write_bytes(b"x"),
        lambda path: (path / "optimiser.pt").unlink(),
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
    with pytest.raises(CheckpointError, match="of run theirs, not ours"):
        Checkpoints(tmp_path, "ours").restore(model, optimiser)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r")
    checkpoints.save(1, model, optimiser, {})
    path = tmp_path / "step-000001"
    torch.save({"optimiser": Evil()}, path / "optimiser.pt")
    manifest = json.loads((path / "manifest.json").read_text())
    from kbqa.training.checkpoints import _checksum

    manifest["files"]["optimiser.pt"] = _checksum(path / "optimiser.pt")
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError):
        checkpoints.restore(model, optimiser)
    assert not (tmp_path / "executed").exists()


def test_what_a_dead_writer_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".aside-dead").mkdir()
    model, optimiser = trained(1)
    checkpoints = Checkpoints(tmp_path, "r")
    assert checkpoints.restore(model, optimiser) is None
    checkpoints.save(1, model, optimiser, {})
    assert not (tmp_path / ".aside-dead").exists()
