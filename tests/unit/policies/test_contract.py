"""What every policy promises, whoever computes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch
from prometheus_client import CollectorRegistry

from kbqa.errors import PolicyUnavailableError
from kbqa.policies.base import FinishReason, SamplingParams, Truncation
from kbqa.policies.transformers import TransformersPolicy
from kbqa.policies.vllm import VllmPolicy, VllmServer, Weights
from kbqa.protocols.kg_r1 import KgR1
from kbqa.telemetry.metrics import Metrics
from kbqa.training.likelihood import token_logprobs
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model
from kbqa.trajectory import Segment
from tests.unit.policies.fake_vllm import FakeVllm
from tests.unit.policies_fixtures import make_codec, make_tokenizer

VERSION = "v000001-aaaaaaaa"
CODEC = make_codec()
# Heads as wide as vLLM's CPU attention wants them.
CONFIG = SmallPolicyConfig(320, layers=2, width=64, heads=2, feed_forward=128, max_length=256)


def make_model():
    return build_model(make_tokenizer(), CONFIG, seed=0).eval()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("version")
    save_model(make_model(), make_tokenizer(), path)
    return path


def held(server: VllmServer, directory) -> VllmPolicy:
    policy = VllmPolicy(server, CODEC, Metrics(CollectorRegistry()), precision="float32", timeout_s=60)
    probe = take_probe(make_model(), CODEC.encode([Segment("who is Ada ?")]))
    policy.hold(Weights(f"run/{VERSION}", VERSION, "full", directory, probe))
    return policy


@pytest.fixture(
    params=["transformers", "fake_vllm", pytest.param("vllm", marks=pytest.mark.integration)], scope="module"
)
def policy(request, directory) -> Iterator[TransformersPolicy | VllmPolicy]:
    """Each knows how to be closed."""
    if request.param == "transformers":
        policy = TransformersPolicy(make_model(), CODEC, VERSION, max_rows=4)
        yield policy
        policy.close()
        return
    fake = FakeVllm(make_model(), CODEC) if request.param == "fake_vllm" else None
    url = fake.url if fake is not None else request.getfixturevalue("start_vllm")(directory).url
    server = VllmServer(url)
    policy = held(server, directory)
    yield policy
    policy.close()
    server.close()
    if fake is not None:
        fake.stop()


def params(max_tokens=12, **options):
    return SamplingParams(max_tokens, max_total_tokens=200, **options)


def prompt(text):
    return CODEC.encode([Segment(text)])


def logits_after(ids):
    with torch.inference_mode():
        return make_model()(torch.tensor([ids])).logits[0, -1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logprobs_are_those_of_a_plain_forward_pass(policy, temperature):
    prompts = [prompt("who is the parent of Ada ? " * k) for k in (1, 2, 3, 3, 4, 5, 1)]
    completions = policy.generate(prompts, params(temperature=temperature, seed=3))
    for ids, completion in zip(prompts, completions, strict=True):
        whole = torch.tensor([[*ids, *completion.token_ids]])
        mask = torch.zeros_like(whole, dtype=torch.bool)
        mask[:, len(ids) :] = True
        with torch.inference_mode():
            expected = token_logprobs(make_model(), whole, mask)[0]
        assert torch.tensor(completion.logprobs) == pytest.approx(expected, abs=1e-4)
        assert completion.policy_version == VERSION


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_logprobs_are_those_after_temperature(policy, temperature):
    ids = prompt("who is Ada ?")
    completion = policy.generate([ids], params(1, temperature=temperature, seed=4))[0]
    expected = (logits_after(ids) / temperature).log_softmax(-1)[completion.token_ids[0]]
    assert completion.logprobs[0] == pytest.approx(expected.item(), abs=1e-4)


def test_truncation_leaves_the_likeliest_tokens_and_renormalises(policy):
    ids = prompt("who is Ada ?")
    kept = logits_after(ids).topk(3)
    completions = policy.generate([ids] * 12, params(1, seed=5, truncation=Truncation(top_k=3)))
    probabilities = dict(zip(kept.indices.tolist(), kept.values.log_softmax(-1).tolist(), strict=True))
    for completion in completions:
        assert completion.logprobs[0] == pytest.approx(probabilities[completion.token_ids[0]], abs=1e-4)
    nucleus = params(1, seed=5, truncation=Truncation(top_p=1e-6))
    assert policy.generate([ids], nucleus)[0].token_ids[0] == kept.indices[0]


def test_greedy_takes_the_most_probable_token(policy):
    ids = prompt("who is Ada ?")
    completion = policy.generate([ids], params(temperature=0.0))[0]
    assert completion.token_ids[0] == logits_after(ids).argmax().item()


def test_a_seed_makes_samples_repeatable_and_siblings_differ(policy):
    ids = prompt("who is Ada ?")
    first = [c.token_ids for c in policy.generate([ids] * 4, params(seed=7))]
    assert [c.token_ids for c in policy.generate([ids] * 4, params(seed=7))] == first
    assert len(set(first)) == 4
    assert [c.token_ids for c in policy.generate([ids] * 4, params(seed=8))] != first


def test_the_next_turn_of_an_episode_reads_what_was_written_token_by_token(policy):
    ids = prompt("who is the parent of Ada ? " * 4)
    first = policy.generate([ids], params(seed=5))[0]
    extended = [*ids, *first.token_ids, *prompt("and of Byron ?")]
    second = policy.generate([extended], params(1, temperature=0.0))[0]
    expected = logits_after(extended).log_softmax(-1)
    assert second.logprobs[0] == pytest.approx(expected[second.token_ids[0]].item(), abs=1e-4)


def free_run(policy, found):
    """A seed, and what it makes the policy write; an end-of-text token may end it early, hence `found`."""
    for seed in range(20):
        token_ids = policy.generate([prompt("who")], params(80, seed=seed))[0].token_ids
        if found(token_ids):
            return seed, token_ids
    raise AssertionError("twenty texts, and none will do")


def first_end(token_ids, stops):
    """Tokens up to the one that completes a stop string."""
    return next(
        n for n in range(1, len(token_ids) + 1) if any(stop in CODEC.decode(token_ids[:n]) for stop in stops)
    )


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_completion_ends_with_the_token_that_completes_a_stop_string(policy, width):
    """The string is one that the policy writes anyway: of one token, or of several, in a row."""

    def starts(token_ids):
        texts = ((n, CODEC.decode(token_ids[n : n + width])) for n in range(5, len(token_ids) - width))
        return [n for n, text in texts if len(text) > width and text.isascii()]

    seed, free = free_run(policy, starts)
    start = starts(free)[0]
    stop = CODEC.decode(free[start : start + width])
    completion = policy.generate([prompt("who")], params(80, seed=seed, stop=("no such text", stop)))[0]
    assert completion.finish_reason is FinishReason.STOP
    assert completion.token_ids == free[: first_end(free, [stop])]
    assert len(completion.logprobs) == len(completion.token_ids)


def test_a_tag_stops(policy):
    seed, free = free_run(policy, lambda ids: any(tag in CODEC.decode(ids) for tag in KgR1().tags))
    completion = policy.generate([prompt("who")], params(80, seed=seed, stop=KgR1().tags))[0]
    assert completion.finish_reason is FinishReason.STOP
    assert completion.token_ids == free[: first_end(free, KgR1().tags)]


def test_length_bounds_hold(policy):
    ids = prompt("who is Ada ?")
    completion = policy.generate([ids], params(5, seed=1))[0]
    assert (len(completion.token_ids), completion.finish_reason) == (5, FinishReason.LENGTH)
    bounded = SamplingParams(100, max_total_tokens=len(ids) + 3, seed=1)
    assert len(policy.generate([ids], bounded)[0].token_ids) == 3


def test_a_prompt_without_room_is_refused(policy):
    with pytest.raises(ValueError, match="leaves no room"):
        policy.generate([list(range(200))], params())
    with pytest.raises(ValueError, match="leaves no room"):
        policy.generate([[]], params())


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
def test_what_nobody_waits_for_is_aborted(policy, how):
    for prompts in (8, 64, 512):  # a quick engine is done with the first ones before anybody leaves
        cancelled = threading.Event()
        leaving = threading.Timer(0.05, cancelled.set)
        leaving.start()
        stopping = {"cancelled": cancelled} if how == "cancelled" else {"deadline": time.monotonic() + 0.05}
        completions = policy.generate([prompt("who is Ada ?")] * prompts, params(150, seed=1), **stopping)
        leaving.join()
        if FinishReason.ABORTED in {completion.finish_reason for completion in completions}:
            break
    else:
        pytest.fail("all was computed, whoever waited for it")
    assert all(len(completion.token_ids) == len(completion.logprobs) for completion in completions)
    # It goes on for others.
    completion = policy.generate([prompt("who")], params(3, seed=1))[0]
    assert completion.finish_reason is not FinishReason.ABORTED


def test_what_is_finished_in_time_is_whole(policy):
    stopping = {"deadline": time.monotonic() + 60, "cancelled": threading.Event()}
    ids = prompt("who is Ada ?")
    [completion] = policy.generate([ids], params(seed=1), **stopping)
    [plain] = policy.generate([ids], params(seed=1))
    assert (completion.token_ids, completion.finish_reason) == (plain.token_ids, plain.finish_reason)


def test_no_prompts_no_completions(policy):
    assert policy.generate([], params()) == []


def test_a_closed_policy_refuses(policy):
    """The last one: the policy is shared by this module."""
    policy.close()
    with pytest.raises(PolicyUnavailableError):
        policy.generate([prompt("who")], params())
