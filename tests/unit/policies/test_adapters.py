"""Adapters merged into their base: what they compute, how one takes another's place, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from kbqa.errors import BaseNotFoundError, PolicyIntegrityError, PolicyMismatchError
from kbqa.policies.adapters import AdaptedModel
from kbqa.policies.chooser.beginning import WORD_PIECE, begin_chooser
from kbqa.policies.in_process import load_model
from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.runs.student import Student
from kbqa.training.adapters import Adapter, add_adapter, merged
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import save_model
from tests.unit.encoders import save_encoder
from tests.unit.policies_fixtures import make_model, make_tokenizer

IDS = torch.arange(20, 60).reshape(2, 20)
ALL = Adapter().targets


@pytest.fixture
def base(tmp_path) -> Path:
    save_model(make_model(), make_tokenizer(), tmp_path / "base")
    return tmp_path / "base"


def train(base: Path, directory: Path, seed: int, targets: tuple[str, ...] = ALL):
    """An adapter that is not fresh, saved as a trainer saves it; returns its model's probe."""
    model = load_model(base)
    add_adapter(model, Adapter(rank=4, alpha=8, targets=targets), seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # zero in a fresh adapter, which computes nothing
                torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(directory)
    return take_probe(model, [30, 31, 32])


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model.eval()(input_ids=IDS, use_cache=False).logits


def beside(base: Path, adapter: Path) -> torch.Tensor:
    """What peft computes with the adapter beside the frozen weights."""
    return logits(PeftModel.from_pretrained(load_model(base), adapter))


def test_a_merged_adapter_computes_what_it_does_beside_the_weights(base, tmp_path) -> None:
    probe = train(base, tmp_path / "a", seed=1)
    merged = AdaptedModel.load(tmp_path / "a", str(base), probe).model
    assert type(merged.model.layers[0].self_attn.q_proj) is torch.nn.Linear
    wanted, plain = beside(base, tmp_path / "a"), logits(load_model(base))
    assert (wanted - plain).abs().max() > 0.1
    torch.testing.assert_close(logits(merged), wanted, atol=1e-5, rtol=1e-5)


def test_an_adapter_takes_anothers_place_without_a_trace_of_it(base, tmp_path) -> None:
    probes = [
        train(base, tmp_path / "0", seed=1),
        train(base, tmp_path / "1", seed=2),
        train(base, tmp_path / "2", seed=3, targets=("q_proj",)),
    ]
    adapted = AdaptedModel.load(tmp_path / "0", str(base), probes[0])
    first = logits(adapted.model)
    for name in ("1", "2", "1", "2"):
        adapted.swap(tmp_path / name, probes[int(name)])
        torch.testing.assert_close(logits(adapted.model), beside(base, tmp_path / name), atol=1e-5, rtol=1e-5)
    adapted.swap(tmp_path / "0", probes[0])
    assert torch.equal(logits(adapted.model), first)  # to the last digit, however many were between


def test_an_adapter_of_another_base_is_noticed(base, tmp_path) -> None:
    save_model(make_model(seed=9), make_tokenizer(), tmp_path / "other")
    probe = train(tmp_path / "other", tmp_path / "a", seed=1)
    with pytest.raises(PolicyMismatchError, match="the base model that the adapter was trained on"):
        AdaptedModel.load(tmp_path / "a", str(base), probe)


def test_a_base_that_is_nowhere_or_not_named_is_said(base, tmp_path) -> None:
    train(base, tmp_path / "a", seed=1)
    with pytest.raises(BaseNotFoundError, match="hf download nobody/has-this"):
        AdaptedModel.load(tmp_path / "a", "nobody/has-this", None)
    with pytest.raises(PolicyIntegrityError, match="does not name its base model"):
        AdaptedModel.load(tmp_path / "a", None, None)


def change_config(directory: Path, **values) -> None:
    path = directory / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_weights(directory: Path, change) -> None:
    path = directory / "adapter_model.safetensors"
    save_file(change(load_file(path)), path)


LAYER = "base_model.model.model.layers.0.self_attn.q_proj"
UP = f"{LAYER}.lora_B.weight"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: (d / "adapter_config.json").unlink(), "the adapter cannot be loaded"),
        (lambda d: (d / "adapter_config.json").write_text("[]"), "the adapter cannot be loaded"),
        (lambda d: (d / "adapter_model.safetensors").write_bytes(b"x"), "the adapter cannot be loaded"),
        (lambda d: change_config(d, use_rslora=True), "use_rslora"),
        (lambda d: change_config(d, alpha_pattern={"q_proj": 3}), "alpha_pattern"),
        (lambda d: change_config(d, peft_type="IA3"), "only plain LoRA adapters are supported"),
        (lambda d: change_weights(d, lambda w: w | {f"{LAYER}.bias": torch.ones(2)}), "q_proj.bias"),
        (
            lambda d: change_weights(d, lambda w: {n: t for n, t in w.items() if n != UP}),
            "lora_B.weight' is missing",
        ),
        (
            lambda d: change_weights(d, lambda w: w | {UP: torch.ones(3, 4)}),
            "layers.0.self_attn.q_proj does not fit",
        ),
        (
            lambda d: change_weights(d, lambda w: {n.replace("s.0", "s.7"): t for n, t in w.items()}),
            "layers.7.mlp.down_proj does not fit",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_refused_and_changes_nothing(base, tmp_path, spoil, said) -> None:
    train(base, tmp_path / "good", seed=1)
    train(base, tmp_path / "bad", seed=2)
    spoil(tmp_path / "bad")
    adapted = AdaptedModel.load(tmp_path / "good", str(base), None)
    before = logits(adapted.model)
    with pytest.raises(PolicyIntegrityError, match=said):
        adapted.swap(tmp_path / "bad", None)
    assert torch.equal(logits(adapted.model), before)


def test_an_adapter_of_a_chooser_is_merged_into_that_chooser_and_brings_its_own_head(tmp_path) -> None:
    """A policy that was trained before may be the base of the next training, as any other directory may."""
    chooser, tokenizer = begin_chooser(save_encoder(tmp_path / "encoder"), ChoosingProtocol.tags, seed=1)
    with torch.no_grad():
        for parameter in chooser.parameters():
            parameter.add_(0.1)  # so that it is not the encoder of which it was made
    save_model(chooser, tokenizer, tmp_path / "base", pad=WORD_PIECE.pad, end=WORD_PIECE.end)
    student = Student.pretrained(str(tmp_path / "base"), ChoosingProtocol.tags, seed=2)
    torch.testing.assert_close(student.model.state_dict(), chooser.state_dict())
    add_adapter(student.model, Adapter(rank=4, alpha=8, targets=("query", "value")), seed=3)
    with torch.no_grad():
        for name, parameter in student.model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(0.01 if "lora" in name else 0.2)
    student.save(tmp_path / "adapter")
    found = AdaptedModel.load(tmp_path / "adapter", str(tmp_path / "base"), None).model
    torch.testing.assert_close(found.state_dict(), merged(student.model).state_dict())
    assert not torch.equal(found.head.start, chooser.head.start)


def choosers_adapter(directory):
    """The weights of an adapter that is saved in `adapter`; its base is in `base`."""
    chooser, tokenizer = begin_chooser(save_encoder(directory / "encoder"), ChoosingProtocol.tags, seed=1)
    save_model(chooser, tokenizer, directory / "base", pad=WORD_PIECE.pad, end=WORD_PIECE.end)
    student = Student.pretrained(str(directory / "base"), ChoosingProtocol.tags, seed=1)
    add_adapter(student.model, Adapter(rank=4, alpha=8, targets=("query", "value")), seed=3)
    student.save(directory / "adapter")
    return load_file(directory / "adapter" / "adapter_model.safetensors")


def test_a_choosers_adapter_of_an_earlier_version_is_read(tmp_path) -> None:
    weights = choosers_adapter(tmp_path)
    for name in ("scale", "gain", "behind", "cover", "near", "match", "first", "again"):
        del weights[f"base_model.model.head.{name}.exponent"]
        weights[f"base_model.model.head.{name.replace('behind', 'ahead')}"] = torch.tensor(4.0)
    save_file(weights, tmp_path / "adapter" / "adapter_model.safetensors")
    head = AdaptedModel.load(tmp_path / "adapter", str(tmp_path / "base"), None).model.head
    assert [head.match().item(), head.behind().item()] == pytest.approx([4, 40])


@pytest.mark.parametrize("earlier", [False, True])
def test_a_choosers_adapter_without_a_part_of_its_head_is_refused(tmp_path, earlier) -> None:
    """It would be played with an untrained part."""
    weights = choosers_adapter(tmp_path)
    del weights["base_model.model.head.gain.exponent"]
    if earlier:
        weights["base_model.model.head.scale"] = torch.tensor(10.0)
    save_file(weights, tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(PolicyIntegrityError, match="head.gain.exponent is missing"):
        AdaptedModel.load(tmp_path / "adapter", str(tmp_path / "base"), None)


def test_an_adapter_of_tied_weights_is_refused(tmp_path) -> None:
    model = make_model()
    model.config.tie_word_embeddings = True
    model.tie_weights()
    save_model(model, make_tokenizer(), tmp_path / "base")
    down, up = torch.zeros(4, 32), torch.zeros(model.config.vocab_size, 4)
    train(tmp_path / "base", tmp_path / "a", seed=1)
    names = {"base_model.model.lm_head.lora_A.weight": down, "base_model.model.lm_head.lora_B.weight": up}
    change_weights(tmp_path / "a", lambda weights: names)
    with pytest.raises(PolicyIntegrityError, match="lm_head does not fit"):
        AdaptedModel.load(tmp_path / "a", str(tmp_path / "base"), None)
