"""Whole weights sent straight into a real vLLM, by kbqa's transfer engine, and what happens when one dies."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from kbqa.policies.base import SamplingParams
from kbqa.policies.probe import Precision
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.vllm import VllmServer
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import load_recipe
from kbqa.runs.student import Student
from kbqa.serving.hosting import OnVllm
from kbqa.telemetry.metrics import Metrics
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model, train_tokenizer
from kbqa.trajectory import Segment
from tests.vllm_server import Vllm

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2400)]

VERSIONS = 50
WAIT_S = 300.0
SENDER = """
import os, signal, sys, time
from pathlib import Path
from kbqa.policies.vllm import sender
from kbqa.policy_store import PolicyStore

store, pause_s, last = PolicyStore(Path(sys.argv[1])), float(sys.argv[2]), int(sys.argv[3])
pieces = sender._pieces
def slowly(data):
    for number, piece in enumerate(pieces(data), 1):
        yield piece
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(pause_s)
sender._pieces = slowly
serving = sender.WeightSender(lambda run, version: store.get(run, version).path, "127.0.0.1", 0)
print(serving.address[1], flush=True)
time.sleep(3600)
"""


class Sender:
    """A sender in a process of its own, which can be killed.

    Args:
        pause_s: after every piece.
        last: number of the piece after which it dies; with 0 it lives.
    """

    def __init__(self, store: Path, *, pause_s: float = 0.0, last: int = 0) -> None:
        command = [sys.executable, "-c", SENDER, str(store), str(pause_s), str(last)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = "127.0.0.1", int(self.process.stdout.readline())

    def kill(self) -> None:
        """End it; does nothing if it is over."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def base(questions, tmp_path_factory):
    tags = load_recipe("kg-r1-small").protocol.build().tags
    tokenizer = train_tokenizer([q.text for q in questions], tags, 400)
    config = SmallPolicyConfig(400, layers=2, width=64, heads=2, feed_forward=128, max_length=256)
    directory = tmp_path_factory.mktemp("base")
    save_model(build_model(tokenizer, config, seed=0), tokenizer, directory)
    return config, tokenizer, directory


@pytest.fixture(scope="module")
def store(base, tmp_path_factory) -> PolicyStore:
    """Versions 1 to 50 of the run `sent`."""
    config, tokenizer, directory = base
    store, recipe = PolicyStore(tmp_path_factory.mktemp("policies")), load_recipe("kg-r1-small")
    student = Student.load(directory)
    for number in range(1, VERSIONS + 1):
        student.model.load_state_dict(build_model(tokenizer, config, seed=number).state_dict())
        store.publish(
            "sent",
            number,
            student.save,
            recipe=recipe.model_dump(mode="json"),
            recipe_digest=recipe.digest(),
            step=number,
            metrics={},
            probe=student.probe(),
        )
    return store


def with_kbqa(site: Path) -> dict[str, Any]:
    """How to start a vLLM in whose environment kbqa is installed.

    Args:
        site: an empty directory.
    """
    about = site / "kbqa-0.dist-info"  # vLLM finds its plugins by the entry points of packages
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kbqa\nVersion: 0\n")
    (about / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nkbqa = kbqa.policies.vllm.plugin:register\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[3]), str(site)])
    return {
        "options": ("--weight-transfer-config", '{"backend": "kbqa"}'),
        "environment": {"PYTHONPATH": path},
    }


@pytest.fixture(scope="module")
def vllm(base, start_vllm, tmp_path_factory) -> Vllm:
    return start_vllm(base[2], **with_kbqa(tmp_path_factory.mktemp("site")))


@pytest.fixture
def start_sender(store) -> Iterator[Callable[..., Sender]]:
    """Starts a `Sender` of the store's versions, which is killed at the end."""
    with ExitStack() as senders:

        def start(**options: Any) -> Sender:
            sender = Sender(store._shelf.path, **options)
            senders.callback(sender.kill)
            return sender

        yield start


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest.fixture
def server(vllm) -> Iterator[VllmServer]:
    server = VllmServer(vllm.url)
    yield server
    server.close()


def hosting(
    server: VllmServer,
    metrics: Metrics,
    store: PolicyStore,
    sender: Sender | None,
    precision: Precision = "float32",
) -> OnVllm:
    address = None if sender is None else sender.address
    return OnVllm(
        [server], metrics, precision=precision, timeout_s=WAIT_S, sender=address, verify=store.verify
    )


def checksums(vllm: Vllm) -> dict[str, str]:
    answer = httpx.post(f"{vllm.url}/weight_checker", json={"action": "checksum"}, timeout=WAIT_S)
    return answer.raise_for_status().json()["checksums"]


def failures(metrics: Metrics) -> float:
    labels = {"operation": "transfer"}
    return metrics.registry.get_sample_value("kbqa_engine_failures_total", labels) or 0.0


def versions(store: PolicyStore) -> list[PolicyVersion]:
    return store.versions("sent")


def test_weights_that_are_sent_are_those_in_the_files_of_each_of_fifty_versions(
    vllm, server, store, metrics, start_sender
) -> None:
    sender = start_sender()
    every, codec = versions(store), TokenizerCodec.load(versions(store)[0].path)
    assert len(every) == VERSIONS
    found: dict[str, list[dict[str, str]]] = {"sent": [], "read": []}
    seconds = dict.fromkeys(found, 0.0)
    for way, source in (("sent", sender), ("read", None)):
        hosted = hosting(server, metrics, store, source).build(every[0], codec, deterministic=False)
        for version in every:
            began = time.monotonic()
            hosted.swap(version)
            seconds[way] += time.monotonic() - began
            found[way].append(checksums(vllm))
        hosted.close()
    logger.info("seconds a version: %s", {way: total / VERSIONS for way, total in seconds.items()})
    assert found["sent"] == found["read"]
    assert len({tuple(sums.items()) for sums in found["sent"]}) == VERSIONS
    assert failures(metrics) == 0


def test_a_sender_that_dies_in_the_middle_leaves_the_files(
    vllm, server, store, metrics, start_sender
) -> None:
    older, newer = versions(store)[:2]
    codec = TokenizerCodec.load(older.path)
    sender = start_sender()
    hosted = hosting(server, metrics, store, sender).build(older, codec, deterministic=False)
    before = checksums(vllm)
    sender.kill()
    dying = start_sender(last=10)  # of some 30 pieces
    again = hosting(server, metrics, store, dying)
    rebuilt = again.build(newer, codec, deterministic=False)
    assert dying.process.wait() == -signal.SIGKILL
    assert failures(metrics) == 1
    assert checksums(vllm) != before
    completion = rebuilt.policy.generate([prompt(codec)], SamplingParams(4, 200, seed=1))[0]
    assert completion.policy_version == newer.id
    hosted.close()
    rebuilt.close()


def test_an_update_that_a_dead_worker_has_begun_does_not_hinder_the_next(
    vllm, server, store, metrics, start_sender
) -> None:
    httpx.post(f"{vllm.url}/start_weight_update", timeout=WAIT_S).raise_for_status()
    version = versions(store)[4]
    sender = start_sender()
    hosted = hosting(server, metrics, store, sender).build(
        version, TokenizerCodec.load(version.path), deterministic=False
    )
    assert failures(metrics) == 0
    hosted.close()


def test_a_server_that_sleeps_computes_nothing_and_goes_on_when_it_wakes(
    vllm, server, store, metrics
) -> None:
    """Without a GPU no memory is freed; the scheduler rests all the same."""
    version = versions(store)[0]
    codec = TokenizerCodec.load(version.path)
    hosted = hosting(server, metrics, store, None).build(version, codec, deterministic=False)
    before = hosted.policy.generate([prompt(codec)], SamplingParams(8, 200, seed=1))[0]
    with ThreadPoolExecutor(1) as pool:
        with server.asleep():
            asked = pool.submit(hosted.policy.generate, [prompt(codec)], SamplingParams(8, 200, seed=1))
            time.sleep(1)
            assert not asked.done()
        assert asked.result()[0].token_ids == before.token_ids
    hosted.close()


def test_a_server_that_dies_in_the_middle_receives_the_next_version_once_it_is_back(
    vllm, server, store, metrics, start_sender
) -> None:
    older, newer = versions(store)[2:4]
    codec = TokenizerCodec.load(older.path)
    sender = start_sender(pause_s=0.1)
    host = hosting(server, metrics, store, sender)
    killer = subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 -{os.getpgid(vllm.process.pid)}"])
    with pytest.raises(Exception, match="vLLM at"):
        host.build(older, codec, deterministic=False)
    killer.wait()
    vllm.kill()
    vllm.start()
    vllm.ready()
    count = failures(metrics)
    hosted = host.build(newer, codec, deterministic=False)
    assert failures(metrics) == count  # it was sent
    completion = hosted.policy.generate([prompt(codec)], SamplingParams(4, 200, seed=1))[0]
    assert completion.policy_version == newer.id
    hosted.close()


def prompt(codec: TokenizerCodec) -> list[int]:
    return codec.encode([Segment("Who is it?")])
