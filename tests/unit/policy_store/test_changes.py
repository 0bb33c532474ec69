"""What differs between versions: fields, and how far tensors moved, in every kind of number."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kbqa.errors import PolicyIntegrityError
from kbqa.policy_store import PolicyStore, compare
from kbqa.policy_store.tensors import Tensors
from tests.unit.policy_store.conftest import DIGEST, RECIPE


@pytest.fixture
def store(tmp_path: Path) -> PolicyStore:
    return PolicyStore(tmp_path / "policies")


def publish(store, number, tensors, config="{}", **metrics):
    def write(directory: Path) -> None:
        (directory / "config.json").write_text(config)
        save_file(tensors, directory / "model.safetensors")

    return store.publish(
        "r1", number, write, recipe=RECIPE, recipe_digest=DIGEST, step=number, metrics=metrics
    )


def test_fields_and_norms_of_change(store) -> None:
    zeros = torch.zeros(2)
    old = publish(store, 1, {"a": torch.tensor([[3.0, 4.0]]), "b": zeros, "gone": torch.zeros(2)}, f1=0.5)
    moved = {"a": torch.tensor([[3.0, 1.0]]), "b": torch.ones(2), "new": zeros}
    changes = compare(old, publish(store, 2, moved, config='{"x": 1}', f1=0.75))
    assert changes.fields == {"number": (1, 2), "step": (1, 2), "metrics.f1": (0.5, 0.75)}
    first, second = changes.tensors
    assert (first.name, first.shape, first.norm, first.relative) == ("a", (1, 2), 3.0, 0.6)
    assert (second.norm, second.relative) == (pytest.approx(math.sqrt(2)), math.inf)
    assert (changes.added, changes.removed, changes.files) == (("new",), ("gone",), ("config.json",))


def test_the_same_weights_have_not_moved(store) -> None:
    weights = {"a": torch.randn(3, 3)}
    (change,) = compare(publish(store, 1, weights), publish(store, 2, weights)).tensors
    assert (change.norm, change.relative) == (0.0, 0.0)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool],
)
def test_every_kind_of_number_is_read_as_the_library_does(tmp_path, dtype) -> None:
    tensor = (torch.randn(5, 7) * 3).to(dtype)
    save_file(
        {"x": tensor, "empty": torch.zeros(0, 4), "scalar": torch.tensor(2.5)}, tmp_path / "m.safetensors"
    )
    tensors = Tensors(tmp_path)
    assert tensors.names == ["empty", "scalar", "x"]
    assert tensors.shape("x") == (5, 7)
    assert tensors.numbers("x", 0, 100).tolist() == tensor.double().flatten().tolist()
    assert tensors.numbers("x", 3, 2).tolist() == tensor.double().flatten()[3:5].tolist()
    assert tensors.numbers("scalar", 0, 9).tolist() == [2.5]
    assert tensors.numbers("empty", 0, 9).tolist() == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        struct.pack("<Q", 2**40) + b"{}",
        struct.pack("<Q", 4) + b"rubb",
        struct.pack("<Q", 60) + b'{"x":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}     ',
        struct.pack("<Q", 60) + b'{"x":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}}       ' + b"0" * 4,
        struct.pack("<Q", 60) + b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}     ' + b"0" * 4,
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path, data) -> None:
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(PolicyIntegrityError, match="not a safetensors file"):
        Tensors(tmp_path)
