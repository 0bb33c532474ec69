"""Adapters in this process: built beside their base, and changed while the policy is used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kbqa.errors import BaseNotFoundError, PolicyMismatchError
from kbqa.policies.base import SamplingParams
from kbqa.policies.in_process import load_model
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.serving.hosting import InProcess
from kbqa.training.adapters import Adapter, add_adapter, merged
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import save_model
from tests.unit.policies_fixtures import make_codec, make_model, make_tokenizer

PROMPT = [30, 31, 32]


@pytest.fixture
def base(tmp_path) -> Path:
    save_model(make_model(), make_tokenizer(), tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def publish(tmp_path, base):
    """`publish(number, base_model)`: an adapter's version, and a model that has it in its weights."""
    store = PolicyStore(tmp_path / "policies")

    def publish(number: int, base_model: str) -> tuple[PolicyVersion, object]:
        model = load_model(base)
        add_adapter(model, Adapter(rank=4), number)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.05)

        def write(directory: Path) -> None:
            model.save_pretrained(directory)
            make_tokenizer().save(str(directory / "tokenizer.json"))

        version = store.publish(
            "run",
            number,
            write,
            recipe={"name": "kg-r1"},
            recipe_digest="0" * 64,
            step=number,
            metrics={},
            base_model=base_model,
            kind="lora",
            probe=take_probe(model, PROMPT),
        )
        return version, merged(model)

    return publish


def written(policy, version: str) -> list[int]:
    [completion] = policy.generate([PROMPT], SamplingParams(12, 100, temperature=0.0))
    assert completion.policy_version == version
    return list(completion.token_ids)


@torch.inference_mode()
def greedy(model) -> list[int]:
    ids = list(PROMPT)
    for _ in range(12):
        ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(PROMPT) :]


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_adapter_is_played_and_a_newer_one_takes_its_place(publish, base, deterministic) -> None:
    versions = [publish(number, str(base)) for number in (1, 2)]
    codec = TokenizerCodec.load(versions[0][0].path)
    hosted = InProcess(max_rows=4).build(versions[0][0], codec, deterministic=deterministic)
    try:
        first = written(hosted.policy, versions[0][0].id)
        hosted.swap(versions[1][0])
        second = written(hosted.policy, versions[1][0].id)
        assert [first, second] == [greedy(model) for _, model in versions]
        assert first != second
    finally:
        hosted.close()


def test_an_adapter_whose_base_is_not_here_or_is_another_is_not_played(publish, tmp_path) -> None:
    version, _ = publish(1, "nobody/has-this")
    with pytest.raises(BaseNotFoundError, match="hf download nobody/has-this"):
        InProcess(max_rows=4).build(version, make_codec(), deterministic=False)
    save_model(make_model(seed=9), make_tokenizer(), tmp_path / "other")
    version, _ = publish(2, str(tmp_path / "other"))
    with pytest.raises(PolicyMismatchError, match="trained on"):
        InProcess(max_rows=4).build(version, make_codec(), deterministic=False)
