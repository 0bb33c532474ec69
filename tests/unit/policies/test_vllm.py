"""What is peculiar to a policy in a vLLM server: how weights change, and what a failing server does."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

from kbqa.errors import ConfigurationError, PolicyMismatchError, PolicyUnavailableError
from kbqa.policies.base import FinishReason, SamplingParams
from kbqa.policies.vllm import Sent, VllmPolicy, VllmServer, Weights
from kbqa.policies.vllm.client import Client
from kbqa.telemetry.metrics import Metrics
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import save_model
from kbqa.trajectory import Segment
from tests.unit.policies.fake_vllm import FakeVllm
from tests.unit.policies_fixtures import make_codec, make_model, make_tokenizer

CODEC = make_codec()
GENERATE = "/inference/v1/generate"
TIMEOUT_S = 60.0  # more than a busy machine takes for anything here
PROMPTLY_S = TIMEOUT_S / 2


@pytest.fixture
def fake() -> Iterator[FakeVllm]:
    fake = FakeVllm(make_model(), CODEC)
    yield fake
    fake.stop()


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a request that hangs waits for; set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest.fixture
def policy(fake, metrics) -> Iterator[VllmPolicy]:
    server = VllmServer(fake.url, update_timeout_s=TIMEOUT_S)
    policy = VllmPolicy(server, CODEC, metrics, precision="float32", timeout_s=TIMEOUT_S)
    yield policy
    policy.close()
    server.close()


@pytest.fixture
def weights(tmp_path):
    """`weights(2)` are those of version 2; `kind` and `probe_of` may be others'."""

    def make(number: int, kind="full", probe_of: int | None = None) -> Weights:
        path: Path = tmp_path / f"{number}"
        if not path.exists():
            save_model(make_model(seed=number), make_tokenizer(), path)
        model = make_model(seed=number if probe_of is None else probe_of)
        probe = take_probe(model, prompt("who is Ada ?"))
        version = f"v{number:06d}-aaaaaaaa"
        return Weights(f"run/{version}", version, kind, path, probe)

    return make


def prompt(text: str) -> list[int]:
    return CODEC.encode([Segment(text)])


def write(policy: VllmPolicy, count: int = 1, max_tokens: int = 6):
    return policy.generate([prompt("who")] * count, SamplingParams(max_tokens, 200, seed=1))


def failures(metrics: Metrics, operation: str) -> float:
    return metrics.registry.get_sample_value("kbqa_engine_failures_total", {"operation": operation}) or 0.0


def test_whole_weights_are_replaced_while_the_engine_stands_still(policy, fake, weights, metrics) -> None:
    policy.hold(weights(1))
    first = write(policy)[0]
    fake.asked.clear()
    policy.hold(weights(2))
    steps = [urlsplit(path).path for path in fake.asked]
    assert steps[: steps.index("/resume") + 1] == [
        "/health",
        "/pause",
        "/collective_rpc",
        "/update_weight_version",
        "/weight_info",
        "/reset_prefix_cache",
        "/resume",
    ]
    assert "mode=keep" in fake.asked[1]
    second = write(policy)[0]
    assert (first.policy_version, second.policy_version) == ("v000001-aaaaaaaa", "v000002-aaaaaaaa")
    assert first.logprobs != second.logprobs
    assert metrics.registry.get_sample_value("kbqa_engine_logprob_gap") < 1e-4
    assert metrics.registry.get_sample_value("kbqa_engine_update_seconds_count", {"kind": "full"}) == 2


def test_weights_that_compute_something_else_are_not_served(policy, fake, weights, metrics) -> None:
    policy.hold(weights(1))
    with pytest.raises(PolicyMismatchError, match="v000002-aaaaaaaa"):
        policy.hold(weights(2, probe_of=3))
    assert not policy.alive
    with pytest.raises(PolicyUnavailableError, match="no policy is loaded"):
        write(policy)
    assert not fake.paused
    assert failures(metrics, "update") == 1
    policy.hold(weights(2))
    assert policy.alive
    assert write(policy)[0].policy_version == "v000002-aaaaaaaa"


@pytest.mark.parametrize("broken", ["/collective_rpc", "/update_weight_version", "/reset_prefix_cache"])
def test_a_change_that_fails_half_way_ends_what_is_in_flight_and_resumes(
    policy, fake, weights, never, broken
) -> None:
    policy.hold(weights(1))
    begun = threading.Event()

    def answer(path, body):
        if path == GENERATE and "stop" in body["sampling_params"]:
            begun.set()
            never.wait()
        return (
            (500, {"error": {"message": "out of memory"}})
            if path.startswith(broken)
            else fake.execute(path, body)
        )

    fake.answer = answer
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(write, policy)
        begun.wait(TIMEOUT_S)
        began = time.monotonic()
        with pytest.raises(PolicyUnavailableError, match="out of memory"):
            policy.hold(weights(2))
        with pytest.raises(PolicyUnavailableError):
            call.result()
    assert time.monotonic() - began < PROMPTLY_S
    assert fake.asked[-1] == "/resume"
    assert not fake.paused


def test_a_completion_during_which_weights_change_counts_as_the_older_ones(policy, fake, weights) -> None:
    policy.hold(weights(1))
    policy.hold(weights(2))
    older, newer = weights(1).label, weights(2).label

    def answer(path, body):
        status, document = fake.execute(path, body)
        if path == GENERATE:
            spans = [{"version": older, "start": 0, "end": 2}, {"version": newer, "start": 2, "end": 6}]
            document["choices"][0]["weight_versions"] = spans
        return status, document

    fake.answer = answer
    assert write(policy)[0].policy_version == "v000001-aaaaaaaa"


def test_a_server_that_was_started_anew_is_noticed(policy, fake, weights) -> None:
    policy.hold(weights(1))
    fake.label = "default"
    with pytest.raises(PolicyUnavailableError, match="was restarted"):
        write(policy)
    assert not policy.alive


def test_adapters_stand_beside_each_other_until_nobody_uses_them(policy, fake, weights) -> None:
    policy.hold(weights(1, "lora"))
    first, second = weights(1).label, weights(2).label
    assert fake.adapters == [first]
    begun, go_on = threading.Event(), threading.Event()

    def answer(path, body):
        if path == GENERATE and body.get("model") == first:
            begun.set()
            go_on.wait(TIMEOUT_S)
        return fake.execute(path, body)

    fake.answer = answer
    with ThreadPoolExecutor(1) as pool:
        older = pool.submit(write, policy)
        begun.wait(TIMEOUT_S)
        policy.hold(weights(2, "lora"))
        assert fake.adapters == [first, second]
        assert write(policy)[0].policy_version == "v000002-aaaaaaaa"
        go_on.set()
        assert older.result()[0].policy_version == "v000001-aaaaaaaa"
    assert fake.adapters == [second]
    policy.hold(weights(3, "lora"))
    assert fake.adapters == [weights(3).label]
    policy.close()
    assert fake.adapters == []


def test_what_a_process_before_has_left_is_unloaded_and_an_adapter_that_lies_is_not_kept(
    policy, fake, weights
) -> None:
    fake.execute("/v1/load_lora_adapter", {"lora_name": "run/left", "lora_path": str(weights(1).path)})
    with pytest.raises(PolicyMismatchError):
        policy.hold(weights(2, "lora", probe_of=3))
    assert fake.adapters == []
    policy.hold(weights(2, "lora"))
    assert fake.adapters == [weights(2).label]


def test_an_adapter_that_is_gone_fails_typed(policy, fake, weights) -> None:
    policy.hold(weights(1, "lora"))
    fake.execute("/v1/unload_lora_adapter", {"lora_name": weights(1).label})
    with pytest.raises(PolicyUnavailableError, match="does not exist"):
        write(policy)


def test_a_server_that_hangs_is_waited_for_but_not_for_ever(fake, weights, metrics, never) -> None:
    server = VllmServer(fake.url)
    policy = VllmPolicy(server, CODEC, metrics, timeout_s=1.0)
    policy.hold(weights(1))
    assert policy.max_length == 256
    fake.answer = lambda path, body: (200, never.wait())
    completions = write(policy, count=3)
    assert {c.finish_reason for c in completions} == {FinishReason.LOST}
    assert "no answer within 1 s" in completions[0].detail
    assert failures(metrics, "generate") == 3
    assert policy.alive
    policy.close()
    server.close()


def test_one_stuck_completion_and_one_refused_cost_nobody_else(fake, weights, metrics, never) -> None:
    server = VllmServer(fake.url)
    policy = VllmPolicy(server, CODEC, metrics, precision="float32", timeout_s=10.0)
    policy.hold(weights(1))
    numbers = iter(range(1000))

    def answer(path, body):
        if path == GENERATE and "stop" in body["sampling_params"]:
            match next(numbers):
                case 1:
                    return 200, never.wait()
                case 2:
                    return 500, {"error": {"message": "EngineCore encountered an issue"}}
        return fake.execute(path, body)

    fake.answer = answer
    with ThreadPoolExecutor(31) as others:
        beside = [others.submit(write, policy) for _ in range(31)]
        four = write(policy, count=4)
    written = [*four, *(completion for call in beside for completion in call.result())]
    lost = [c for c in written if c.finish_reason is FinishReason.LOST]
    assert sorted("EngineCore" in c.detail for c in lost) == [False, True]
    assert len(written) - len(lost) == 33
    assert policy.alive
    assert fake.label == weights(1).label
    policy.close()
    server.close()


def _longer(document):
    document["choices"][0]["text"] = "x" * 2**22
    return document


def _too_many_tokens(document):
    choice = document["choices"][0]
    choice["token_ids"] *= 9
    choice["logprobs"]["content"] *= 9
    return document


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_longer, r"more than \d+ bytes.*KBQA_VLLM_URL"),
        (_too_many_tokens, "at most 6 were asked for.*KBQA_VLLM_URL"),
        (lambda document: {"choices": []}, "answered /inference/v1/generate with 200"),
        (lambda document: "hello", "hello"),
    ],
)
def test_an_answer_that_is_no_completion_of_that_length_is_lost_alone(
    policy, fake, weights, spoil, told
) -> None:
    policy.hold(weights(1))
    first = threading.Semaphore(1)

    def answer(path, body):
        status, document = fake.execute(path, body)
        return status, spoil(document) if path == GENERATE and first.acquire(blocking=False) else document

    fake.answer = answer
    [lost] = [c for c in write(policy, count=3) if c.finish_reason is FinishReason.LOST]
    assert re.search(told, lost.detail)
    assert policy.alive


def test_closing_ends_calls_in_flight(policy, fake, weights, never, metrics) -> None:
    policy.hold(weights(1))
    begun = threading.Event()

    def answer(path, body):
        if path == GENERATE:
            begun.set()
            never.wait()
        return fake.execute(path, body)

    fake.answer = answer
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(write, policy)
        begun.wait(TIMEOUT_S)
        began = time.monotonic()
        policy.close()
        with pytest.raises(PolicyUnavailableError):
            call.result()
    assert time.monotonic() - began < PROMPTLY_S
    assert metrics.registry.get_sample_value("kbqa_engine_requests_running") == 0


def test_nobody_at_the_address_is_told_with_the_setting() -> None:
    nobody = VllmServer("http://127.0.0.1:1")
    with pytest.raises(PolicyUnavailableError, match="KBQA_VLLM_URL"):
        nobody.require_healthy()
    assert "KBQA_VLLM_URL" in nobody.unready()
    nobody.close()


def test_completions_beyond_the_bound_wait_here_and_their_time_begins_when_they_are_sent(
    fake, weights, metrics
) -> None:
    server = VllmServer(fake.url, max_in_flight=2)
    policy = VllmPolicy(server, CODEC, metrics, precision="float32", timeout_s=TIMEOUT_S)
    policy.hold(weights(1))
    running, most, lock = 0, 0, threading.Lock()

    def answer(path, body):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
        return fake.execute(path, body)

    fake.answer = answer
    assert len(write(policy, count=6, max_tokens=1)) == 6
    assert most == 2
    policy.close()
    server.close()


def test_connections_that_the_server_closed_while_idle_are_opened_again(policy, fake, weights) -> None:
    policy.hold(weights(1))
    write(policy, count=3)
    fake.hang_up()
    assert len(write(policy, count=3)) == 3


def test_a_request_whose_connection_is_reset_is_sent_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)

        def serve() -> None:
            refused, _ = listener.accept()
            refused.recv(65536)
            refused.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            refused.close()
            served, _ = listener.accept()
            with served:
                served.recv(65536)
                served.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        serving = threading.Thread(target=serve)
        serving.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", max_in_flight=1)
        assert client.ask("POST", "/anything", {}, timeout_s=60) == (200, {})
        client.close()
        serving.join()


def test_weights_that_are_not_finite_are_told(policy, fake, weights) -> None:
    policy.hold(weights(1))

    def answer(path, body):
        status, document = fake.execute(path, body)
        if path == GENERATE:
            document["choices"][0]["logprobs"]["content"][1]["logprob"] = -9999.0
        return status, document

    fake.answer = answer
    with pytest.raises(PolicyUnavailableError, match="not finite"):
        write(policy)


def test_a_server_without_the_endpoint_says_how_to_start_it(policy, fake, weights) -> None:
    fake.answer = lambda path, body: (
        (403, {"error": {"message": "disabled"}}) if path == GENERATE else (fake.execute(path, body))
    )
    with pytest.raises(PolicyUnavailableError, match="--enable-scale-out"):
        policy.hold(weights(1))


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "https://host:1", "http://host", "http://host:x", "http://h:1/v1"]
)
def test_what_is_no_address_of_a_server_is_refused(url) -> None:
    with pytest.raises(ConfigurationError, match="KBQA_VLLM_URL"):
        VllmServer(url)


def test_a_server_sleeps_while_it_has_to_and_wakes_whatever_happens(fake) -> None:
    server = VllmServer(fake.url)

    def train() -> None:
        with server.asleep():
            assert fake.sleeping
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert "level=1&mode=keep" in fake.asked[0]
    assert not fake.sleeping
    server.wake()  # does no harm
    fake.can_sleep = False
    with pytest.raises(PolicyUnavailableError, match="--enable-sleep-mode"), server.asleep():
        pass
    fake.answer = lambda path, body: (404, {"detail": "Not Found"})
    with pytest.raises(PolicyUnavailableError, match="VLLM_SERVER_DEV_MODE"), server.asleep():
        pass
    server.close()


def test_what_is_sent_replaces_weights_and_what_does_not_arrive_is_read(
    policy, fake, weights, metrics
) -> None:
    """An update that somebody who has died had begun is ended first."""
    verified: list[str] = []
    refused, begun = threading.Event(), threading.Event()
    begun.set()

    def answer(path, body):
        if path == "/get_world_size":
            return 200, {"world_size": 2}
        if path == "/start_weight_update" and begun.is_set():
            begun.clear()
            return 500, {"error": {"message": "a weight update is already active"}}
        if path == "/update_weights" and refused.is_set():
            return 500, {"error": {"message": "the weights' checksum is another"}}
        if path == "/finish_weight_update" and "/update_weights" in fake.asked:  # what it has received
            fake.execute("/collective_rpc", {"kwargs": {"weights_path": str(sent.path)}})
        return fake.execute(path, body)

    def meet(processes: int) -> dict[str, object]:
        return {"master_address": "127.0.0.1", "master_port": 1, "world_size": 1 + processes}

    fake.answer = answer
    sent = replace(weights(1), sent=Sent(meet, "ab", 1000, lambda: verified.append("1")))
    policy.hold(sent)
    order = ["/pause", "/init_weight_transfer_engine", "/start_weight_update", "/finish_weight_update"]
    order += ["/start_weight_update", "/update_weights", "/finish_weight_update"]
    order += ["/update_weight_version", "/resume"]
    steps = [urlsplit(path).path for path in fake.asked]
    assert [step for step in steps if step in order] == order
    assert "/collective_rpc" not in steps
    assert (verified, failures(metrics, "transfer")) == ([], 0)
    refused.set()
    sent = replace(weights(2), sent=Sent(meet, "ab", 1000, lambda: verified.append("2")))
    policy.hold(sent)
    assert "/collective_rpc" in [urlsplit(path).path for path in fake.asked]
    assert write(policy)[0].policy_version == "v000002-aaaaaaaa"
    assert (verified, failures(metrics, "transfer")) == (["2"], 1)


def test_larger_weights_are_waited_for_longer(fake) -> None:
    derived, fixed = VllmServer(fake.url), VllmServer(fake.url, update_timeout_s=7)
    assert (derived.update_timeout_s(0), derived.update_timeout_s(16 * 10**9)) == (120, 280)
    assert fixed.update_timeout_s(16 * 10**9) == 7
