"""The engine of a chooser: who is answered, with what, and what happens when it fails."""

from __future__ import annotations

import copy
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from kbqa.errors import PolicyIntegrityError, PolicyUnavailableError
from kbqa.policies.base import FinishReason, Ranking, SamplingParams, Truncation
from kbqa.policies.chooser.policy import ChooserPolicy, _Swap
from kbqa.policies.in_process import open_policy
from tests.unit.policies.chooser.episodes import AGAIN, ASKED, read, tokens


def params(**values):
    return SamplingParams(max_tokens=1, max_total_tokens=1024, **values)


def test_the_engine_draws_from_the_options(policy, codec):
    prompts = [tokens(codec, AGAIN)] * 200
    drawn = policy.generate(prompts, params(temperature=1.0, seed=3))
    numbers = {codec.decode(completion.token_ids) for completion in drawn}
    assert len(numbers) > 1
    assert numbers <= {"<0>", "<1>", "<2>"}
    assert all(c.finish_reason is FinishReason.STOP and c.policy_version == "v000001-aaaaaaaa" for c in drawn)
    again = policy.generate(prompts, params(temperature=1.0, seed=3))
    assert [c.token_ids for c in again] == [c.token_ids for c in drawn]


def test_log_probabilities_are_those_of_the_model(policy, codec, model):
    [completion] = policy.generate([tokens(codec, AGAIN)], params(temperature=0.5, seed=1))
    decision = read(codec, model, AGAIN)[1]
    with torch.no_grad():
        logprobs = (model([decision])[0] / 0.5).log_softmax(0)
    place = [option.token for option in decision.options].index(completion.token_ids[0])
    assert completion.logprobs[0] == pytest.approx(float(logprobs[place]), abs=1e-5)


def test_greedily_and_truncated_it_takes_the_likeliest(policy, codec, model):
    decision = read(codec, model, AGAIN)[1]
    with torch.no_grad():
        best = decision.options[int(model([decision])[0].argmax())].token
    for how in (params(temperature=0.0), params(temperature=1.0, truncation=Truncation(top_k=1))):
        drawn = policy.generate([tokens(codec, AGAIN)] * 20, how)
        assert {c.token_ids for c in drawn} == {(best,)}


def test_all_options_are_ranked_the_likeliest_first(policy, codec, model):
    """Beside a prompt with fewer options, which has no more completions for that."""
    decisions = [read(codec, model, text)[-1] for text in (ASKED, AGAIN)]
    found = policy.ranked([tokens(codec, ASKED), tokens(codec, AGAIN)])
    for decision, (completions, declining) in zip(decisions, found, strict=True):
        assert declining == 0
        assert {c.token_ids for c in completions} == {(option.token,) for option in decision.options}
        with torch.no_grad():
            logprobs = model([decision])[0].log_softmax(0)[: len(decision.options)]
        expected = sorted(logprobs.tolist(), reverse=True)
        assert [c.logprobs[0] for c in completions] == pytest.approx(expected, abs=1e-5)


def test_the_options_that_decline_have_a_probability_together(forms):
    model, codec = forms
    asked = (
        "<question>who wrote <topic> ?</question><options><0> answer<1> directed by<2><missing> written by"
        "<3><none> none of these</options>"
    )
    policy = ChooserPolicy(model, "v")
    [(completions, declining)] = policy.ranked([tokens(codec, asked)])
    policy.close()
    found = {codec.decode(c.token_ids): math.exp(c.logprobs[0]) for c in completions}
    assert declining == pytest.approx(found["<2>"] + found["<3>"])
    assert sum(found.values()) == pytest.approx(1)


def test_ranking_and_sampling_share_a_pass(policy, codec):
    with ThreadPoolExecutor(8) as pool:
        ranked = [pool.submit(policy.ranked, [tokens(codec, AGAIN)]) for _ in range(16)]
        drawn = [
            pool.submit(policy.generate, [tokens(codec, AGAIN)], params(temperature=0)) for _ in range(16)
        ]
    best = {future.result()[0].token_ids for future in drawn}
    assert {future.result()[0].completions[0].token_ids for future in ranked} == best


def test_texts_are_encoded_once_per_weights(policy, codec, model):
    calls = []
    hook = model.bert.register_forward_hook(lambda *_: calls.append(1))
    for _ in range(3):
        policy.generate([tokens(codec, AGAIN)], params())
    before = len(calls)
    assert before == 2  # the question, and the relations
    policy.swap("v000002-bbbbbbbb", lambda model: None)
    [completion] = policy.generate([tokens(codec, AGAIN)], params())
    hook.remove()
    assert len(calls) == 2 * before
    assert completion.policy_version == "v000002-bbbbbbbb"


def test_many_threads_share_a_pass(policy, codec):
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: policy.generate([tokens(codec, ASKED)], params(temperature=0)), range(64))
        )
    assert len({completion.token_ids for [completion] in answers}) == 1


def test_a_deterministic_engine_computes_the_same_to_the_digit(model, codec):
    policy = open_policy(model, codec, "v", deterministic=True)
    asked, other = tokens(codec, AGAIN), tokens(codec, ASKED.replace("who", "what is the city where"))
    alone = policy.generate([asked], params(temperature=0))[0]
    beside = policy.generate([other, asked], params(temperature=0))[1]
    policy.close()
    assert alone == beside


@pytest.mark.parametrize("prompt", [(), "<question>who ?</question>", f"{ASKED}<1>"])
def test_a_prompt_that_offers_nothing_is_refused(policy, codec, prompt):
    with pytest.raises(ValueError, match="does not end with options"):
        policy.generate([tokens(codec, prompt) if prompt else []], params())


def test_what_nobody_waits_for_is_aborted(policy, codec):
    cancelled = threading.Event()
    cancelled.set()
    for late in ({"cancelled": cancelled}, {"deadline": time.monotonic() - 1}):
        [completion] = policy.generate([tokens(codec, ASKED)], params(), **late)
        assert completion.finish_reason is FinishReason.ABORTED
        assert policy.ranked([tokens(codec, ASKED)] * 2, **late) == [Ranking([])] * 2


def test_a_closed_engine_says_so(model, codec):
    policy = ChooserPolicy(model, "v")
    policy.close()
    assert not policy.alive
    with pytest.raises(PolicyUnavailableError, match="closed"):
        policy.generate([tokens(codec, ASKED)], params())


def test_an_engine_that_fails_says_so_and_stops(model, codec, monkeypatch):
    policy = ChooserPolicy(model, "v")

    def fail(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model.head, "scores", fail)
    with pytest.raises(PolicyUnavailableError, match="out of memory"):
        policy.generate([tokens(codec, ASKED)], params())
    assert not policy.alive
    with pytest.raises(PolicyUnavailableError):
        policy.generate([tokens(codec, ASKED)], params())


def test_nobody_waits_for_an_engine_that_failed_before_their_turn(model, codec, monkeypatch):
    """A request, and a swap that was taken up with it, as they are when both wait for one pass."""
    policy = ChooserPolicy(model, "v")
    begun, failing = threading.Event(), threading.Event()

    def fail(*_, **__):
        begun.set()
        failing.wait(10)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model.head, "scores", fail)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(policy.generate, [tokens(codec, ASKED)], params())]
        assert begun.wait(10)
        waiting.append(pool.submit(policy.generate, [tokens(codec, ASKED)], params()))
        waiting.append(pool.submit(policy.swap, "v2", lambda model: None))
        failing.set()
        for future in waiting:
            with pytest.raises(PolicyUnavailableError):
                future.result(timeout=10)


def test_a_batch_that_fails_fails_all_that_was_taken_up_with_it(model, codec):
    policy = ChooserPolicy(model, "v")
    policy.close()
    swap = _Swap("v2", lambda model: None)
    policy._refuse(PolicyUnavailableError("failed"), [swap])
    with pytest.raises(PolicyUnavailableError, match="failed"):
        swap.future.result(timeout=30)


class _Encoder(torch.nn.Module):
    """Gives states where it is given tokens; BERT itself looks at its mask, which `meta` does not hold."""

    def forward(self, input_ids, attention_mask):
        assert input_ids.device == attention_mask.device
        return SimpleNamespace(last_hidden_state=torch.zeros(*input_ids.shape, 32, device=input_ids.device))


def test_everything_is_computed_where_the_weights_are(model, codec):
    """Without a GPU: tensors of the device `meta` refuse to meet those of another."""
    elsewhere = copy.deepcopy(model)
    elsewhere.bert = _Encoder()
    assert elsewhere.to("meta")(read(codec, model, AGAIN)).device.type == "meta"


def test_a_swap_that_fails_is_told_and_changes_nothing(policy, codec):
    def fail(model):
        raise PolicyIntegrityError("damaged")

    with pytest.raises(PolicyIntegrityError, match="damaged"):
        policy.swap("v000002-bbbbbbbb", fail)
    assert policy.version == "v000001-aaaaaaaa"
    assert policy.generate([tokens(codec, ASKED)], params())
