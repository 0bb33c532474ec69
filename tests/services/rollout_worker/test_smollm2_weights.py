"""SmolLM2, whose head is its embedding, in a real vLLM: weights by both ways, and which probes pass."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kbqa.bases import KNOWN, find_base, sight
from kbqa.policies.base import SamplingParams
from kbqa.policies.probe import Probe
from kbqa.policies.vllm import VllmServer
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import load_recipe
from kbqa.runs.student import Student
from kbqa.training.probing import take_probe
from kbqa.trajectory import Segment
from tests.services.rollout_worker.test_weight_transfer import (
    checksums,
    failures,
    hosting,
    metrics,
    prompt,
    server,
    start_sender,
    with_kbqa,
)
from tests.vllm_server import Vllm

__all__ = ["metrics", "server", "start_sender"]  # fixtures

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

SMOLLM2 = KNOWN["HuggingFaceTB/SmolLM2-135M-Instruct"]
VERSIONS, WAIT_S = 50, 300.0
LARGE_LOGIT = 24.0
PROBED_VERSIONS, PROBED_TEXTS = 10, 10
NOISE = 0.02  # of a weight's standard deviation, by which versions differ


@pytest.fixture(scope="module")
def base() -> Path:
    if sight(SMOLLM2.name) is None:
        pytest.skip(f"not installed: {SMOLLM2.package.how_to_install}")
    return find_base(SMOLLM2.name).directory


@pytest.fixture(scope="module")
def vllm(base, start_vllm, tmp_path_factory) -> Iterator[Vllm]:
    start = with_kbqa(tmp_path_factory.mktemp("site"))
    start["options"] += ("--max-model-len", "1024")
    vllm = start_vllm(base, dtype="bfloat16", **start)
    yield vllm
    vllm.kill()


@pytest.fixture
def student(base) -> Student:
    return Student.load(base)


@pytest.fixture
def store(tmp_path) -> Iterator[PolicyStore]:
    yield PolicyStore(tmp_path)
    shutil.rmtree(tmp_path / "sent")  # pytest would keep gigabytes


@pytest.fixture
def publish(student, store) -> Callable[[int], PolicyVersion]:
    """`publish(number)`: the version before it with noise, in bf16."""
    recipe = load_recipe("kg-r1-smollm2")

    def publish(number: int) -> PolicyVersion:
        disturb(student.model, number)
        return store.publish(
            "sent",
            number,
            lambda directory: student.save(directory, "bfloat16"),
            recipe=recipe.model_dump(mode="json"),
            recipe_digest=recipe.digest(),
            step=number,
            metrics={},
            probe=student.probe("bfloat16"),
        )

    return publish


def disturb(model, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(NOISE * weight.std() * torch.randn(weight.shape, generator=generator))


def texts_as_long_as_a_probe(student: Student, questions: list[str]) -> list[tuple[int, ...]]:
    """As many questions in a row as a version's own probe has tokens, each time from another one on."""
    probe = student.probe("bfloat16")
    assert probe is not None
    rows = [" ".join(questions[first:] + questions[:first]) for first in range(PROBED_TEXTS)]
    return [tuple(student.codec.encode([Segment(row)])[: len(probe.token_ids)]) for row in rows]


def held(vllm: Vllm, server: VllmServer, version: PolicyVersion) -> tuple[dict[str, str], list[float]]:
    """Checksums of what the engine holds, and what it computes; without a GPU, it computes with copies."""
    probe = version.manifest.probe
    assert probe is not None
    return checksums(vllm), server.score(probe, None)


def test_fifty_versions_that_are_sent_are_those_that_are_read(
    vllm, server, store, metrics, student, publish, start_sender
) -> None:
    """Each is read after its successor was sent, so that both ways always change the weights."""
    sender = start_sender()
    before = publish(0)
    sent = hosting(server, metrics, store, sender, "bfloat16").build(
        before, student.codec, deterministic=False
    )
    when_sent = [held(vllm, server, before)]
    read = hosting(server, metrics, store, None, "bfloat16").build(before, student.codec, deterministic=False)
    for number in range(1, VERSIONS + 1):
        version = publish(number)
        sent.swap(version)
        when_sent.append(held(vllm, server, version))
        read.swap(before)
        assert held(vllm, server, before) == when_sent[-2]
        shutil.rmtree(before.path)
        before = version
    assert len({tuple(sums.items()) for sums, _ in when_sent}) == VERSIONS + 1
    assert failures(metrics) == 0
    sent.close()
    read.close()


def test_a_sender_that_dies_in_mid_update_leaves_the_files(
    vllm, server, store, metrics, student, publish, start_sender
) -> None:
    older, newer = publish(1), publish(2)
    read = hosting(server, metrics, store, None, "bfloat16").build(newer, student.codec, deterministic=False)
    expected = held(vllm, server, newer)
    read.swap(older)
    assert held(vllm, server, newer) != expected
    dying = start_sender(last=100)  # of 272 tensors
    hosted = hosting(server, metrics, store, dying, "bfloat16").build(
        newer, student.codec, deterministic=False
    )
    dying.process.wait()
    assert failures(metrics) == 1
    assert held(vllm, server, newer) == expected
    completion = hosted.policy.generate([prompt(student.codec)], SamplingParams(4, 200, seed=1))[0]
    assert completion.policy_version == newer.id
    read.close()
    hosted.close()


def test_with_large_logits_every_probe_of_the_version_passes_and_none_of_another(
    vllm, server, store, metrics, student, publish, questions
) -> None:
    token_ids = texts_as_long_as_a_probe(student, [question.text for question in questions])
    with torch.inference_mode():  # the norm before a tied head scales its logits, and nothing else
        largest = min(student.model(torch.tensor([ids])).logits.max() for ids in token_ids)
        student.model.model.norm.weight.mul_(LARGE_LOGIT / largest)

    def probes() -> list[Probe]:
        return [take_probe(student.model, ids, weights="bfloat16") for ids in token_ids]

    version = publish(0)
    own = probes()
    hosted = hosting(server, metrics, store, None, "bfloat16").build(
        version, student.codec, deterministic=False
    )
    gaps: tuple[list[float], list[float]] = [], []
    for number in range(1, PROBED_VERSIONS + 1):
        successor = publish(number)
        others = probes()
        for found, some in zip(gaps, (own, others), strict=True):
            found += [probe.gap(server.score(probe, None)) / probe.largest_gap("bfloat16") for probe in some]
        hosted.swap(successor)
        own = others
    right, wrong = gaps
    assert len(right) == len(wrong) == PROBED_VERSIONS * PROBED_TEXTS
    assert max(right) <= 1 < min(wrong), (max(right), min(wrong))
    hosted.close()
