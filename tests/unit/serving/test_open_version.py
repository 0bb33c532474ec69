"""A published version as an engine: an adapter here, others in a vLLM server (not real: test_contract.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kbqa.errors import PolicyMismatchError, PolicyUnavailableError
from kbqa.policies.base import SamplingParams
from kbqa.policies.vllm import VllmServer
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import load_recipe
from kbqa.serving.hosting import InProcess, OnVllm
from kbqa.serving.policies import open_version
from kbqa.telemetry.metrics import Metrics
from kbqa.training.adapters import Adapter, add_adapter
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import save_model
from tests.unit.policies.fake_vllm import FakeVllm
from tests.unit.policies_fixtures import make_codec, make_model, make_tokenizer

CODEC = make_codec()
PROMPT = [30, 31, 32]


@pytest.fixture
def fake() -> Iterator[FakeVllm]:
    fake = FakeVllm(make_model(), CODEC)
    yield fake
    fake.stop()


@pytest.fixture
def vllm(fake) -> Iterator[OnVllm]:
    server = VllmServer(fake.url)
    yield OnVllm([server], Metrics(CollectorRegistry()), precision="float32", timeout_s=60)
    server.close()


@pytest.fixture
def store(tmp_path) -> PolicyStore:
    return PolicyStore(tmp_path / "policies")


def publish(store: PolicyStore, number: int, kind="full", probe_of: int | None = None) -> PolicyVersion:
    recipe = load_recipe("kg-r1-small")
    probed = make_model(seed=number if probe_of is None else probe_of)
    return store.publish(
        "run",
        number,
        lambda directory: save_model(make_model(seed=number), make_tokenizer(), directory),
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=recipe.digest(),
        step=0,
        metrics={},
        kind=kind,
        probe=take_probe(probed, PROMPT),
    )


def write(served) -> str:
    return served.players.policy.generate([PROMPT], SamplingParams(4, 100, seed=1))[0].policy_version


def test_adapters_answer_beside_each_other_until_they_are_closed(store, vllm, fake) -> None:
    older, newer = publish(store, 1, "lora"), publish(store, 2, "lora")
    first = open_version(older, vllm)
    second = open_version(newer, vllm)
    assert (write(first), write(second)) == (older.id, newer.id)
    assert len(fake.adapters) == 2
    first.close()
    assert fake.adapters == [f"run/{newer.id}"]
    second.close()


def test_whole_weights_take_the_place_of_those_before_and_no_answer_mixes_them(store, vllm) -> None:
    older, newer = publish(store, 1), publish(store, 2)
    first = open_version(older, vllm)
    assert write(first) == older.id
    second = open_version(newer, vllm)
    with pytest.raises(PolicyUnavailableError, match="has taken its place"):
        write(first)
    assert not first.alive()
    assert (write(second), second.alive()) == (newer.id, True)
    first.close()
    second.close()


def test_an_adapter_is_served_in_this_process_from_its_base(store, tmp_path) -> None:
    save_model(make_model(), make_tokenizer(), tmp_path / "base")
    model = make_model()
    add_adapter(model, Adapter(rank=4), seed=1)

    def save(directory: Path) -> None:
        model.save_pretrained(directory)
        make_tokenizer().save(str(directory / "tokenizer.json"))

    recipe = load_recipe("kg-r1-small")
    version = store.publish(
        "run",
        1,
        save,
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=recipe.digest(),
        step=1,
        metrics={},
        base_model=str(tmp_path / "base"),
        kind="lora",
        probe=take_probe(model, PROMPT),
    )
    served = open_version(version, InProcess(2))
    assert write(served) == version.id
    served.close()


def test_weights_that_are_not_the_trainers_are_not_served(store, vllm) -> None:
    with pytest.raises(PolicyMismatchError):
        open_version(publish(store, 1, probe_of=3), vllm)
