import math

import pytest
import torch

from kbqa.objectives import SurrogateConfig, k3, surrogate_loss, token_weights


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.5, 1.0, -1.2),  # a good token is pushed no further than 1 + 0.2
        (1.5, -1.0, 1.5),  # a bad one that became likelier is punished in full
        (0.5, 1.0, -0.5),
        (0.5, -1.0, 0.8),  # no further than 1 - 0.2
    ],
)
def test_the_clipped_surrogate_takes_the_pessimistic_side(ratio, advantage, expected):
    loss, _ = surrogate_loss(
        tensor(math.log(ratio)), tensor(0.0), tensor(advantage), SurrogateConfig(), weights=tensor(1.0)
    )
    assert loss.item() == pytest.approx(expected)


def test_clip_bounds_may_differ():
    config = SurrogateConfig(clip_low=0.2, clip_high=0.28)
    loss, metrics = surrogate_loss(
        tensor(math.log(1.5)), tensor(0.0), tensor(1.0), config, weights=tensor(1.0)
    )
    assert loss.item() == pytest.approx(-1.28)
    assert metrics["clip_fraction"] == 1.0
    assert (metrics["clip_low_fraction"], metrics["clip_high_fraction"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (20.0, -1.0, 10.0),  # at most c times the advantage
        (1.5, -1.0, 1.5),  # below the bound nothing changes
        (20.0, 1.0, -1.2),  # nor for a good token
    ],
)
def test_dual_clip_bounds_what_a_bad_token_can_cost(ratio, advantage, expected):
    config = SurrogateConfig(dual_clip=10.0)
    loss, _ = surrogate_loss(
        tensor(math.log(ratio)), tensor(0.0), tensor(advantage), config, weights=tensor(1.0)
    )
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight"),
    [(1.0, 1.0, 1.0), (1.5, 1.0, 1.5), (5.0, 1.0, 2.0), (5.0, -1.0, 2.0), (0.25, -1.0, 0.25)],
)
def test_truncated_importance_sampling_weighs_each_token_by_its_ratio_up_to_a_cap(ratio, advantage, weight):
    logprobs = tensor(math.log(ratio)).requires_grad_()
    config = SurrogateConfig(importance_cap=2.0)
    loss, metrics = surrogate_loss(logprobs, tensor(0.0), tensor(advantage), config, weights=tensor(1.0))
    loss.backward()
    # The gradient of -min(rho, C) A log pi: no clip takes it away, and none flows through rho.
    assert logprobs.grad.item() == pytest.approx(-weight * advantage)
    assert metrics["ratio_mean"] == pytest.approx(ratio)
    assert metrics["ratio_max"] == pytest.approx(ratio)
    assert (metrics["capped_fraction"], metrics["clip_fraction"]) == (float(ratio > 2), 0.0)


@pytest.mark.parametrize(
    ("moved", "advantage", "gradient"),
    [(1.1, 1.0, -2.2), (1.3, 1.0, 0.0), (0.7, -1.0, 0.0), (1.3, -1.0, 2.6)],
)
def test_with_a_cap_clipping_is_relative_to_the_weights_that_the_update_began_with(
    moved, advantage, gradient
):
    """The engine found the token a fifth as likely as the trainer, so its weight is the cap, 2."""
    logprobs = tensor(math.log(moved)).requires_grad_()
    config = SurrogateConfig(importance_cap=2.0)
    loss, metrics = surrogate_loss(
        logprobs,
        tensor(math.log(0.2)),
        tensor(advantage),
        config,
        weights=tensor(1.0),
        proximal_logprobs=tensor(0.0),
    )
    loss.backward()
    assert logprobs.grad.item() == pytest.approx(gradient)
    assert metrics["capped_fraction"] == 1.0


def test_entropy_is_rewarded_with_its_coefficient():
    config = SurrogateConfig(entropy_coefficient=0.1)
    arguments = (tensor(0.0), tensor(0.0), tensor(1.0), config)
    loss, _ = surrogate_loss(*arguments, weights=tensor(1.0), entropies=tensor(math.log(2)))
    assert loss.item() == pytest.approx(-1 - 0.1 * math.log(2))
    with pytest.raises(ValueError, match="entropies"):
        surrogate_loss(*arguments, weights=tensor(1.0))


def test_k3_is_the_third_estimator():
    # d = log pi_0 - log pi = log 2: 2 - log 2 - 1
    assert k3(tensor(math.log(0.25)), tensor(math.log(0.5))).item() == pytest.approx(1 - math.log(2))
    assert k3(tensor(-1.0), tensor(-1.0)).item() == 0.0


def test_the_kl_penalty_is_added_with_its_coefficient():
    config = SurrogateConfig(kl_coefficient=0.01)
    logprobs = tensor(math.log(0.25))
    loss, metrics = surrogate_loss(
        logprobs, logprobs, tensor(0.0), config, weights=tensor(1.0), reference_logprobs=tensor(math.log(0.5))
    )
    assert loss.item() == pytest.approx(0.01 * (1 - math.log(2)))
    assert metrics["kl"] == pytest.approx(1 - math.log(2))


def test_a_kl_coefficient_without_reference_is_an_error():
    with pytest.raises(ValueError, match="reference"):
        surrogate_loss(
            tensor(0.0), tensor(0.0), tensor(1.0), SurrogateConfig(kl_coefficient=0.1), weights=tensor(1.0)
        )


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token_sum", [0.5, 0.5]),  # per trajectory: sums are averaged over two
        ("token_sum_norm", [0.01, 0.01]),
        ("token_mean", [0.1, 0.1]),
        ("sample_mean", [1 / 4, 1 / 16]),
    ],
)
def test_token_weights_carry_the_aggregation(aggregation, expected):
    assert token_weights([2, 8], aggregation, horizon=100) == pytest.approx(expected)


def test_the_gradient_agrees_with_a_numerical_one():
    """Through a softmax, with clipping on both sides and a KL penalty, in double precision."""
    torch.manual_seed(0)
    logits = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([0, 1, 2, 3, 4, 0])
    behaviour = logits.detach().log_softmax(-1).gather(-1, tokens[:, None])[:, 0] + tensor(
        0.5, -0.5, 0.1, -0.1, 0.4, -0.4
    )
    reference = torch.randn(6, 5, dtype=torch.float64).log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    advantages = tensor(1.0, -1.0, 0.5, -0.5, -2.0, 2.0)
    config = SurrogateConfig(kl_coefficient=0.05, dual_clip=1.3, entropy_coefficient=0.02)

    def loss_of(values):
        distribution = values.log_softmax(-1)
        logprobs = distribution.gather(-1, tokens[:, None])[:, 0]
        return surrogate_loss(
            logprobs,
            behaviour,
            advantages,
            config,
            weights=torch.full((6,), 1 / 6, dtype=torch.float64),
            reference_logprobs=reference,
            entropies=-(distribution.exp() * distribution).sum(-1),
        )[0]

    (gradient,) = torch.autograd.grad(loss_of(logits), logits)
    step = 1e-6
    for row in range(6):
        for column in range(5):
            shift = torch.zeros_like(logits)
            shift[row, column] = step
            with torch.no_grad():
                numerical = (loss_of(logits + shift) - loss_of(logits - shift)) / (2 * step)
            assert gradient[row, column].item() == pytest.approx(numerical.item(), abs=1e-7)
