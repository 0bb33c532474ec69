"""How the weights of a policy in a vLLM server change."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from kbqa.errors import PolicyMismatchError, PolicyUnavailableError
from kbqa.policies.vllm import Sent, VllmServer
from tests.unit.policies.vllm_calls import GENERATE, PROMPTLY_S, TIMEOUT_S, failures, write


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
