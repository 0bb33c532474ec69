import math
from dataclasses import replace

import pytest
import torch

from kbqa.objectives import SurrogateConfig
from kbqa.policies.base import Truncation
from kbqa.training.grpo import GrpoConfig, grpo_step, make_optimiser, proximal_logprobs
from kbqa.training.likelihood import token_logprobs
from kbqa.training.ranks import ALONE, Ranks
from kbqa.training.throughput import utilisation
from kbqa.training.update import grpo_update, mini_batches
from tests.unit.policies_fixtures import make_model
from tests.unit.training.samples import sample

QUESTIONS = [[sample(12, 6, 1.0, seed=1), sample(12, 6, -1.0, seed=2)], [], [sample(9, 4, 0.5, seed=3)]]


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("sizes", "options", "expected"),
    [
        ([2, 1], {}, [[(0, 0), (0, 1), (1, 0)]]),
        ([2, 0, 1, 1], {"mini_batch_questions": 2}, [[(0, 0), (0, 1)], [(2, 0), (3, 0)]]),
        # Three of two: no mini-batch is left with a single question.
        ([1, 1, 1, 1], {"mini_batch_questions": 3}, [[(0, 0), (1, 0)], [(2, 0), (3, 0)]]),
        ([0, 0, 1, 1], {"mini_batch_questions": 2}, [[(2, 0), (3, 0)]]),  # nothing to learn in the first
        ([3, 0, 2], {"mini_batch_samples": 3}, [[(0, 0), (0, 1)], [(0, 2), (2, 0), (2, 1)]]),
        ([0, 0], {"mini_batch_samples": 3}, []),
        ([0, 0], {}, []),
        ([], {}, []),
    ],
)
def test_mini_batches_hold_every_sample_once(sizes, options, expected):
    assert list(mini_batches(sizes, GrpoConfig(**options))) == expected


def test_without_mini_batches_an_update_is_one_step():
    config = GrpoConfig(learning_rate=1e-3)
    updated, stepped = make_model(), make_model()
    result = grpo_update(updated, make_optimiser(updated, config), QUESTIONS, config)
    flat = [sample for samples in QUESTIONS for sample in samples]
    step = grpo_step(stepped, make_optimiser(stepped, config), flat, config)
    assert torch.equal(weights(updated), weights(stepped))
    assert result.metrics == step.metrics
    assert result.trained == (True, False, True)


def test_mini_batches_and_epochs_are_steps_whose_ratios_leave_one():
    config = GrpoConfig(learning_rate=1e-2, mini_batch_questions=1, epochs=2)
    model = make_model()
    optimiser = make_optimiser(model, config)
    result = grpo_update(model, optimiser, QUESTIONS, config)
    steps = {int(state["step"]) for state in optimiser.state.values()}
    assert steps == {4}  # two questions with samples, twice
    assert result.metrics["clip_fraction"] > 0


def test_with_a_cap_the_clip_bounds_what_an_update_changes_and_not_how_old_its_samples_are():
    """Behaviour a nat away from the weights clips every ratio, unless a cap accounts for it."""
    far = [
        [replace(sample, logprobs=tuple(value - 1.0 for value in sample.logprobs)) for sample in samples]
        for samples in QUESTIONS
    ]
    clipped = {}
    for cap in (None, 2.0):
        surrogate = SurrogateConfig(importance_cap=cap)
        config = GrpoConfig(learning_rate=1e-6, mini_batch_questions=1, surrogate=surrogate)
        model = make_model()
        clipped[cap] = grpo_update(model, make_optimiser(model, config), far, config).metrics["clip_fraction"]
    assert clipped == {None: pytest.approx(1.0, abs=0.2), 2.0: 0.0}


def test_proximal_log_probabilities_are_those_of_the_current_weights_in_any_rows():
    samples = [sample for question in QUESTIONS for sample in question]
    model = make_model()
    for budget in (12, 1000):
        scores = proximal_logprobs(model, samples, GrpoConfig(token_budget=budget))
        for each, score in zip(samples, scores, strict=True):
            ids, mask = torch.tensor([each.token_ids]), torch.tensor([each.mask])
            assert score == pytest.approx(token_logprobs(model, ids, mask)[0].tolist(), abs=1e-5)


def test_what_is_not_finite_is_skipped_and_the_rest_is_learned():
    broken = replace(QUESTIONS[0][0], advantages=(float("nan"),) * 12)
    config = GrpoConfig(mini_batch_questions=1)
    model = make_model()
    result = grpo_update(model, make_optimiser(model, config), [[broken], QUESTIONS[2]], config)
    assert result.trained == (False, True)
    assert torch.isfinite(weights(model)).all()
    assert result.metrics
    assert all(value == value for value in result.metrics.values())


def test_an_update_without_samples_changes_nothing():
    model = make_model()
    before = weights(model)
    result = grpo_update(model, make_optimiser(model, GrpoConfig()), [[], []], GrpoConfig())
    assert (result.trained, result.metrics) == ((False, False), {})
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("truncation", [Truncation(), Truncation(top_p=0.9), Truncation(top_k=20)])
def test_the_trainer_asks_of_the_distribution_that_was_drawn_from(truncation):
    """A policy that has not changed has ratios of 1 to what it drew at this temperature and truncation."""
    first, model = QUESTIONS[0][0], make_model()
    ids, mask = torch.tensor([first.token_ids]), torch.tensor([first.mask])
    with torch.no_grad():
        drawn, entropy = token_logprobs(model, ids, mask, temperature=0.8, truncation=truncation)
    assert torch.isfinite(entropy).all()
    behaviour = iter(drawn.tolist())
    rewritten = replace(first, logprobs=tuple(next(behaviour) if m else 0.0 for m in first.mask))
    config = GrpoConfig(temperature=0.8, truncation=truncation)
    result = grpo_update(model, make_optimiser(model, config), [[rewritten]], config)
    assert result.metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert result.metrics["logprob_gap"] == pytest.approx(0.0, abs=1e-5)


def test_the_gradient_of_a_truncated_step_is_finite_with_an_entropy_bonus():
    surrogate = replace(GrpoConfig().surrogate, entropy_coefficient=0.01)
    config = GrpoConfig(truncation=Truncation(top_p=0.5), surrogate=surrogate)
    model = make_model()
    result = grpo_update(model, make_optimiser(model, config), QUESTIONS, config)
    assert result.trained == (True, False, True)


def test_the_moments_of_adam_are_the_recipes():
    config = GrpoConfig(betas=(0.8, 0.95))
    assert {group["betas"] for group in make_optimiser(make_model(), config).param_groups} == {(0.8, 0.95)}


def test_the_largest_ratio_is_that_of_any_token_of_any_step():
    """Samples that were written by another policy, in rows of their own; a mean would lie in between."""
    config = GrpoConfig(learning_rate=0.0, token_budget=12, mini_batch_questions=1)
    near, far = sample(12, 6, 1.0, seed=1), sample(9, 4, 0.5, seed=3)
    model = make_model()
    (near_now, far_now) = proximal_logprobs(model, [near, far], config)

    def written(one, now, factor):
        """With behaviour log-probabilities that make every ratio `factor`."""
        values, shifted = list(one.logprobs), iter(now)
        for place, masked in enumerate(one.mask):
            if masked:
                values[place] = next(shifted) - math.log(factor)
        return replace(one, logprobs=tuple(values))

    questions = [[written(near, near_now, 1.5)], [written(far, far_now, 4.0)]]
    metrics = grpo_update(model, make_optimiser(model, config), questions, config).metrics
    assert metrics["ratio_max"] == pytest.approx(4.0, rel=1e-3)
    assert metrics["ratio_mean"] == pytest.approx(2.75, rel=1e-3)


def test_the_products_of_an_update_are_counted_for_each_computed_token():
    config = GrpoConfig(learning_rate=0.0)
    one = sample(12, 6, 1.0, seed=1)
    model = make_model()
    layers = sum(p.numel() for layer in model.model.layers for p in layer.parameters())
    attention = 12 * len(model.model.layers) * model.config.hidden_size * sum(range(11))
    head = 6 * model.config.hidden_size * model.config.vocab_size * sum(one.mask)
    expected = 6 * layers * 11 + attention + head  # the last token is predicted, and never read
    assert grpo_update(model, make_optimiser(model, config), [[one]], config).flops == expected
    twice = replace(config, epochs=2)
    assert grpo_update(model, make_optimiser(model, twice), [[one]], twice).flops == 2 * expected
    assert grpo_update(model, make_optimiser(model, config), [[]], config).flops is None


def test_the_use_of_gpus_is_a_share_of_their_peak(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    gpus = Ranks(0, 8, torch.device("cuda", 0))
    assert utilisation(8 * 989e12, 4.0, gpus) == pytest.approx(0.25)
    assert utilisation(None, 4.0, gpus) is None
    assert utilisation(1e12, 4.0, ALONE) is None
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "somebody's")
    assert utilisation(1e12, 4.0, gpus) is None
