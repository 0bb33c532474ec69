"""What is peculiar to a policy in a vLLM server: how weights change, and what a failing server does."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbqa.errors import ConfigurationError, PolicyUnavailableError
from kbqa.policies.base import FinishReason
from kbqa.policies.vllm import VllmPolicy, VllmServer
from kbqa.policies.vllm.client import Client
from tests.unit.policies.vllm_calls import CODEC, GENERATE, PROMPTLY_S, TIMEOUT_S, failures, write


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


def _with(**values):
    def spoil(document):
        document["choices"][0].update(values)
        return document

    return spoil


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_longer, r"more than \d+ bytes.*KBQA_VLLM_URL"),
        (_too_many_tokens, "at most 6 were asked for.*KBQA_VLLM_URL"),
        (lambda document: {"choices": []}, "answered with no completion: choices: .*KBQA_VLLM_URL"),
        (lambda document: "hello", "hello"),
        (_with(token_ids=["a"]), r"choices\.0\.token_ids\.0: "),
        (_with(logprobs={"content": [{"token_id": 1, "logprob": None}]}), r"logprobs\.content\.0\.logprob: "),
        (_with(logprobs={"content": [{"token_id": 1, "logprob": float("nan")}]}), "logprob: .*finite"),
        (_with(weight_versions=[7]), r"weight_versions\.0: "),
        (_with(finish_reason=["stop"]), r"finish_reason: "),
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
