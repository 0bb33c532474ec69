"""The sender of weights, with a receiver in this process in the place of a vLLM."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kbqa.errors import NoPolicyError, PolicyUnavailableError
from kbqa.policies.vllm.sender import WeightSender, ask_for, entries, received
from kbqa.training.saving import save_weights
from tests.unit.policies_fixtures import make_model


@pytest.fixture
def sender(tmp_path) -> Iterator[WeightSender]:
    (tmp_path / "r1" / "v1").mkdir(parents=True)
    save_weights(make_model(), tmp_path / "r1" / "v1")

    def find(run: str, version: str) -> Path:
        if not (path := tmp_path / run / version).is_dir():
            raise NoPolicyError(f"run {run} has no policy version {version}")
        return path

    (tmp_path / "r1" / "adapter").mkdir()
    sender = WeightSender(find, "127.0.0.1", 0)
    yield sender
    sender.close()


def test_the_file_of_a_version_arrives_as_it_was_published(sender, tmp_path) -> None:
    group = ask_for(sender.address, "r1", "v1", 1).join(1)
    head = received(group, 8).numpy().tobytes()
    header = received(group, int.from_bytes(head, "little")).numpy().tobytes()
    data, shapes = b"", {}
    for name, entry in entries(header).items():
        start, end = entry["data_offsets"]
        data += received(group, end - start).numpy().tobytes()
        shapes[name] = torch.Size(entry["shape"])
    published = (tmp_path / "r1" / "v1" / "model.safetensors").read_bytes()
    assert hashlib.sha256(head + header + data).digest() == hashlib.sha256(published).digest()
    parameters = dict(make_model().named_parameters())
    assert all(parameters[name].shape == shape for name, shape in shapes.items())


@pytest.mark.parametrize(
    ("version", "message"), [("v2", "has no policy version"), ("adapter", "not a whole model")]
)
def test_what_cannot_be_sent_is_told(sender, version, message) -> None:
    with pytest.raises(PolicyUnavailableError, match=message):
        ask_for(sender.address, "r1", version, 1)


def test_a_sender_that_is_not_there_is_told() -> None:
    with pytest.raises(PolicyUnavailableError, match="127.0.0.1:1 .*is the trainer up"):
        ask_for(("127.0.0.1", 1), "r1", "v1", 1)
