from statistics import fmean

import pytest
import torch

from kbqa.policies.probe import Probe
from kbqa.training.likelihood import token_logprobs
from kbqa.training.probing import expected_gap, take_probe
from kbqa.training.small_policy import SmallPolicyConfig, build_model
from tests.unit.policies_fixtures import make_model, make_tokenizer

TEXT = list(range(40, 72))
TRIALS = 100
CONFIG = SmallPolicyConfig(320, layers=2, width=64, heads=2, feed_forward=128, max_length=256, tied=False)


def test_a_probe_is_a_text_and_how_likely_the_model_finds_it():
    model = make_model().train()
    probe = take_probe(model, [30, 31, 32, 33])
    assert model.training
    assert probe.token_ids == (30, 31, 32, 33)
    assert probe.logprobs == pytest.approx(scored(model.eval(), [30, 31, 32, 33]), abs=1e-5)
    assert not model.model.layers[0]._forward_hooks


def test_a_gap_is_the_mean_absolute_difference():
    probe = Probe((1, 2, 3), (-1.0, -2.0))
    assert probe.gap([-1.5, -1.9]) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="argument"):
        probe.gap([-1.0])


def test_an_engine_that_rounds_may_differ_by_what_rounding_explains():
    exact = Probe((1, 2), (-1.0,), rounding=0.03)
    assert exact.largest_gap("float32") == 1e-3
    assert exact.largest_gap("bfloat16") == pytest.approx(0.075)
    assert Probe((1, 2), (-1.0,), 0.03, "bfloat16").largest_gap("float32") == pytest.approx(0.075)
    assert Probe((1, 2), (-1.0,)).largest_gap("bfloat16") == 1e-2


def test_right_versions_with_large_logits_are_accepted_in_bf16_and_wrong_ones_are_not():
    """A wrong version differs by a tenth in two of its matrices."""
    accepted = accepted_by_a_fixed_bound = refused = 0
    for seed in range(TRIALS):
        torch.manual_seed(seed)
        model = model_with_large_logits(seed)
        probe = take_probe(model, TEXT)
        right, wrong = (copy_of(model) for _ in range(2))
        for matrix in (
            wrong.model.layers[0].self_attn.o_proj.weight,
            wrong.model.layers[1].mlp.down_proj.weight,
        ):
            with torch.no_grad():
                matrix.add_(0.1 * matrix.std() * torch.randn_like(matrix))
        gap = probe.gap(scored(right.bfloat16(), TEXT))
        accepted += gap <= probe.largest_gap("bfloat16")
        accepted_by_a_fixed_bound += gap <= 1e-2
        refused += probe.gap(scored(wrong.bfloat16(), TEXT)) > probe.largest_gap("bfloat16")
    assert (accepted, refused) == (TRIALS, TRIALS)
    assert accepted_by_a_fixed_bound < TRIALS / 10  # which is why the bound is measured


@pytest.mark.parametrize("top", [20.0, 28.0])
@pytest.mark.parametrize("certainty", [0.3, 0.5, 0.9, 0.97])
def test_the_expected_gap_is_the_average_one(top, certainty):
    """Logits as of a large model; an engine rounds them with another offset."""
    generator = torch.Generator().manual_seed(0)
    others = torch.rand(256, 30, generator=generator).exponential_(generator=generator)
    others = (1 - certainty) * others / others.sum(-1, keepdim=True)
    exact = torch.cat([torch.full((256, 1), certainty), others], -1).clamp(min=1e-9).log()
    exact = exact - exact[:, :1] + top + torch.rand(256, 1, generator=generator)
    targets = torch.zeros(256, dtype=torch.long)
    expected = expected_gap(exact, exact.bfloat16().float(), targets)
    shifted = exact + torch.rand(256, 1, generator=generator)
    engine = shifted.bfloat16().float().log_softmax(-1)[:, 0]
    gap = fmean((engine - exact.log_softmax(-1)[:, 0]).abs().tolist())
    assert expected / 2 < gap < expected * 2


def model_with_large_logits(seed: int):
    model = build_model(make_tokenizer(), CONFIG, seed).eval()
    with torch.no_grad():
        largest = model(torch.tensor([TEXT])).logits.max()
        model.lm_head.weight.mul_(24 / largest)
    return model


def copy_of(model):
    copy = build_model(make_tokenizer(), CONFIG, 0).eval()
    copy.load_state_dict(model.state_dict())
    return copy


def scored(model, token_ids) -> list[float]:
    ids = torch.tensor([token_ids])
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    with torch.inference_mode():
        return token_logprobs(model, ids, mask)[0].tolist()
