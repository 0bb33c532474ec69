import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file

from kbqa.policies.in_process import load_model
from kbqa.runs.student import Student
from kbqa.training.adapters import Adapter, add_adapter
from kbqa.training.saving import save_weights
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model
from tests.unit.policies_fixtures import make_model, make_tokenizer

UNTIED = SmallPolicyConfig(320, layers=1, width=32, heads=2, feed_forward=64, max_length=64, tied=False)


@pytest.mark.parametrize("config", [None, UNTIED], ids=["tied", "untied"])
def test_files_are_those_that_the_library_writes_and_their_checksum_is_known(tmp_path, config):
    model = make_model() if config is None else build_model(make_tokenizer(), config, seed=1)
    checksums = save_weights(model, tmp_path)
    model.save_pretrained(tmp_path / "library")
    mine, its = (
        load_file(tmp_path / "model.safetensors"),
        load_file(tmp_path / "library" / "model.safetensors"),
    )
    assert mine.keys() == its.keys()
    assert all(torch.equal(mine[name], its[name]) for name in its)
    assert (tmp_path / "config.json").read_text() == (tmp_path / "library" / "config.json").read_text()
    data = (tmp_path / "model.safetensors").read_bytes()
    assert checksums == {"model.safetensors": hashlib.sha256(data).hexdigest()}


def test_in_bf16_files_take_half_the_space_and_hold_the_rounded_weights(tmp_path):
    model = make_model()
    save_weights(model, tmp_path)
    exact = (tmp_path / "model.safetensors").stat().st_size
    save_weights(model, tmp_path, "bfloat16")
    assert (tmp_path / "model.safetensors").stat().st_size < 0.55 * exact
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = dict(load_model(tmp_path).named_parameters())
    for name, parameter in model.named_parameters():
        assert torch.equal(loaded[name], parameter.bfloat16().float())
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_an_adapter_is_saved_as_an_adapter_in_either_precision(tmp_path):
    model = make_model()
    add_adapter(model, Adapter(rank=4), seed=1)
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        assert save_weights(model, tmp_path / precision, precision) == {}
        tensors = load_file(tmp_path / precision / "adapter_model.safetensors")
        assert {tensor.dtype for tensor in tensors.values()} == {dtype}
        assert not list((tmp_path / precision).glob("model*.safetensors"))


def test_the_probe_of_a_rounded_version_allows_an_exact_engine_what_rounding_changes(tmp_path):
    save_model(make_model(), make_tokenizer(), tmp_path)
    student = Student.load(tmp_path)
    exact, probe = student.probe(), student.probe("bfloat16")
    assert (exact.weights, probe.weights) == ("float32", "bfloat16")
    assert exact.largest_gap("float32") < probe.largest_gap("float32")


def test_a_probe_leaves_room_for_the_token_that_an_engine_writes_after_it(tmp_path):
    save_model(make_model(), make_tokenizer(), tmp_path)
    student = Student.load(tmp_path)
    assert len(student.probe().token_ids) == student.model.config.max_position_embeddings - 1 == 255
