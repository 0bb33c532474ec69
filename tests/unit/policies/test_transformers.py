import threading
import time

import pytest
import torch

from kbqa.errors import PolicyIntegrityError, PolicyUnavailableError
from kbqa.policies.base import FinishReason, SamplingParams, Truncation
from kbqa.policies.in_process import load_model
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.transformers import TransformersPolicy
from kbqa.training.likelihood import token_logprobs
from kbqa.training.small_policy import save_model
from kbqa.trajectory import Segment
from tests.unit.policies_fixtures import counted_steps, make_codec, make_model, make_tokenizer

CODEC = make_codec()


@pytest.fixture
def policy():
    engine = TransformersPolicy(make_model(), CODEC, "v000001-aaaaaaaa", max_rows=4)
    yield engine
    engine.close()


def params(max_tokens=12, **options):
    return SamplingParams(max_tokens, max_total_tokens=200, **options)


def prompt(text):
    return CODEC.encode([Segment(text)])


def scored(model, prompt_ids, completion):
    ids = torch.tensor([[*prompt_ids, *completion.token_ids]])
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, len(prompt_ids) :] = True
    with torch.inference_mode():
        return token_logprobs(model, ids, mask)[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logprobs_are_those_of_a_plain_forward_pass(policy, temperature):
    """Rows of different lengths, more than fit at once, with shared prefixes."""
    prompts = [prompt("who is the parent of Ada ? " * k) for k in (1, 2, 3, 3, 4, 5, 1)]
    completions = policy.generate(prompts, params(temperature=temperature, seed=3))
    for ids, completion in zip(prompts, completions, strict=True):
        expected = scored(make_model(), ids, completion)
        assert torch.tensor(completion.logprobs) == pytest.approx(expected, abs=2e-5)


def test_the_prefix_cache_does_not_change_what_is_written(policy):
    ids = prompt("who is the parent of Ada ? " * 4)
    first = policy.generate([ids], params(seed=5))[0]
    extended = [*ids, *first.token_ids, *prompt("and of Byron ?")]
    warm = policy.generate([extended], params(seed=6))[0]
    cold_engine = TransformersPolicy(make_model(), CODEC, "v", cached_tokens=0)
    cold = cold_engine.generate([extended], params(seed=6))[0]
    cold_engine.close()
    assert warm.token_ids == cold.token_ids
    assert warm.logprobs == pytest.approx(cold.logprobs, abs=2e-5)


def test_greedy_takes_the_most_probable_token(policy):
    ids = prompt("who is Ada ?")
    completion = policy.generate([ids], params(temperature=0.0))[0]
    with torch.inference_mode():
        logits = make_model()(torch.tensor([ids])).logits[0, -1]
    assert completion.token_ids[0] == logits.argmax().item()


def test_a_seed_makes_samples_repeatable_whatever_else_runs(policy):
    ids = prompt("who is Ada ?")
    alone = policy.generate([ids], params(seed=7))[0].token_ids
    noise = threading.Thread(target=policy.generate, args=([prompt("noise " * 9)] * 3, params(60)))
    noise.start()
    beside = policy.generate([ids], params(seed=7))[0].token_ids
    noise.join()
    assert alone == beside


def test_siblings_of_one_prompt_draw_different_samples(policy):
    completions = policy.generate([prompt("who is Ada ?")] * 4, params(seed=1))
    assert len({c.token_ids for c in completions}) > 1


def test_sampling_follows_the_distribution():
    """Frequencies of the first token over 2,000 draws against the model's own probabilities."""
    engine = TransformersPolicy(make_model(), CODEC, "v", max_rows=128)
    ids = prompt("who")
    draws = engine.generate([ids] * 2000, params(1, seed=2))
    engine.close()
    with torch.inference_mode():
        probabilities = make_model()(torch.tensor([ids])).logits[0, -1].softmax(-1)
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in draws]), minlength=len(probabilities))
    chi_square = ((counts - 2000 * probabilities) ** 2 / (2000 * probabilities)).sum().item()
    degrees = len(probabilities) - 1
    assert chi_square < degrees + 5 * (2 * degrees) ** 0.5


def test_a_stop_string_ends_a_completion(policy):
    everything = tuple(CODEC.decode([i]) for i in range(40, 320))
    completion = policy.generate([prompt("who")], params(50, stop=everything, seed=1))[0]
    assert completion.finish_reason is FinishReason.STOP
    assert len(completion.token_ids) < 50


def test_length_bounds_hold(policy):
    ids = prompt("who is Ada ?")
    assert len(policy.generate([ids], params(5))[0].token_ids) == 5
    bounded = SamplingParams(100, max_total_tokens=len(ids) + 3)
    completion = policy.generate([ids], bounded)[0]
    assert len(completion.token_ids) == 3
    assert completion.finish_reason is FinishReason.LENGTH


def test_a_prompt_without_room_is_refused(policy):
    with pytest.raises(ValueError, match="leaves no room"):
        policy.generate([list(range(200))], params())


def test_a_swap_changes_version_and_weights_between_completions(policy):
    ids = prompt("who is Ada ?")
    other = make_model(seed=9)
    flying = threading.Thread(target=policy.generate, args=([prompt("long one")], params(100)))
    flying.start()
    policy.swap("v000002-bbbbbbbb", lambda model: model.load_state_dict(other.state_dict()))
    flying.join()
    completion = policy.generate([ids], params(temperature=0.0))[0]
    assert completion.policy_version == "v000002-bbbbbbbb"
    assert torch.tensor(completion.logprobs) == pytest.approx(scored(other, ids, completion), abs=2e-5)


def test_a_swap_that_fails_is_reported_and_the_engine_lives(policy):
    def broken(_):
        raise PolicyIntegrityError("weights do not fit")

    with pytest.raises(PolicyIntegrityError):
        policy.swap("v2", broken)
    assert policy.generate([prompt("who")], params())[0].policy_version == "v000001-aaaaaaaa"


def test_a_closed_engine_refuses(policy):
    policy.close()
    with pytest.raises(PolicyUnavailableError):
        policy.generate([prompt("who")], params())


def test_an_engine_that_breaks_fails_its_callers(policy):
    policy.swap("v2", lambda model: delattr(model, "lm_head"))
    with pytest.raises(PolicyUnavailableError, match="lm_head"):
        policy.generate([prompt("who")], params())


def test_a_saved_model_is_loaded_again(tmp_path):
    save_model(make_model(), make_tokenizer(), tmp_path)
    engine = TransformersPolicy(load_model(tmp_path), TokenizerCodec.load(tmp_path), "v")
    ids = prompt("who is Ada ?")
    completion = engine.generate([ids], params(temperature=0.0))[0]
    engine.close()
    assert torch.tensor(completion.logprobs) == pytest.approx(scored(make_model(), ids, completion), abs=2e-5)


def test_a_directory_without_a_model_is_an_integrity_error(tmp_path):
    with pytest.raises(PolicyIntegrityError):
        load_model(tmp_path)
    with pytest.raises(PolicyIntegrityError):
        TokenizerCodec.load(tmp_path)


@pytest.mark.parametrize("truncation", [Truncation(top_p=0.8), Truncation(top_k=7), Truncation(0.9, 40)])
def test_logprobs_are_those_of_the_distribution_that_was_drawn_from(policy, truncation):
    """As the trainer computes them for the same weights, whatever else is in the batch."""
    ids = prompt("who is the parent of Ada ?")
    whole = threading.Thread(target=policy.generate, args=([prompt("noise " * 9)] * 2, params(60)))
    whole.start()
    completions = policy.generate([ids] * 6, params(40, temperature=0.7, truncation=truncation, seed=3))
    whole.join()
    for completion in completions:
        token_ids = torch.tensor([[*ids, *completion.token_ids]])
        mask = torch.arange(token_ids.shape[1])[None] >= len(ids)
        with torch.inference_mode():
            expected, _ = token_logprobs(
                make_model(), token_ids, mask, temperature=0.7, truncation=truncation
            )
        # A token at the edge of the nucleus may fall on either side of it by rounding alone.
        assert torch.tensor(completion.logprobs) == pytest.approx(expected, abs=2e-3)


def test_nothing_is_drawn_that_a_truncation_leaves_out():
    engine = TransformersPolicy(make_model(), CODEC, "v", max_rows=128)
    ids = prompt("who")
    draws = engine.generate([ids] * 500, params(1, truncation=Truncation(top_k=5), seed=2))
    engine.close()
    with torch.inference_mode():
        likeliest = make_model()(torch.tensor([ids])).logits[0, -1].topk(5).indices
    assert {draw.token_ids[0] for draw in draws} == set(likeliest.tolist())


def test_a_truncation_means_nothing_to_a_greedy_completion(policy):
    ids = prompt("who is Ada ?")
    plain = policy.generate([ids], params(temperature=0.0))[0]
    assert policy.generate([ids], params(temperature=0.0, truncation=Truncation(top_p=0.1)))[0] == plain


def test_an_aborted_completion_costs_no_further_steps():
    model, cancelled = make_model(), threading.Event()
    steps = counted_steps(model, 0.005)
    engine = TransformersPolicy(model, CODEC, "v", max_rows=2)
    written = []
    asking = threading.Thread(
        target=lambda: written.extend(engine.generate([prompt("who")] * 4, params(190), cancelled=cancelled))
    )
    asking.start()
    while len(steps) < 5:
        time.sleep(0.001)
    cancelled.set()
    asking.join()
    computed = len(steps)
    time.sleep(0.1)
    assert len(steps) == computed < 100
    # What was in flight had begun, what waited had not.
    assert [len(completion.token_ids) > 0 for completion in written] == [True, True, False, False]
    assert {completion.finish_reason for completion in written} == {FinishReason.ABORTED}
    engine.close()
