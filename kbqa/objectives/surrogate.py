"""The clipped surrogate with a KL penalty, over policy tokens only.

Shapes: all tensors are [M], the M tokens at which the mask of a batch is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["token_sum", "token_mean", "trajectory_mean"]

# exp() of more than this is no weight but an accident; it keeps a diverged token finite.
_MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, slots=True)
class SurrogateConfig:
    """Attributes:
    clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
    kl_coefficient: beta, the weight of the K3 estimate against the reference.
    aggregation: how token losses become one number. `token_sum` divides by the number of
        trajectories (KG-R1 sums over tokens), `token_mean` by the number of tokens,
        `trajectory_mean` averages each trajectory over its own tokens first.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_coefficient: float = 0.0
    aggregation: Aggregation = "token_sum"


def surrogate_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    config: SurrogateConfig,
    *,
    weights: Tensor,
    reference_logprobs: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """KG-R1's objective (section 3.3), negated so that it is minimised.

    loss = sum_i w_i (-min(rho_i A_i, clip(rho_i, 1 - l, 1 + h) A_i) + beta K3_i)

    Args:
        logprobs: log pi_theta of each token, differentiable.
        behaviour_logprobs: log pi_old, as recorded when the token was sampled.
        advantages: A of each token.
        weights: w of each token, from `token_weights`; they carry the aggregation.
        reference_logprobs: log pi_0; needed if the KL coefficient is not 0.

    Returns:
        The loss (a scalar) and metrics: clip_fraction, kl, ratio_mean.
    """
    log_ratio = (logprobs - behaviour_logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    losses = -torch.minimum(ratio * advantages, clipped * advantages)
    kl = logprobs.new_zeros(())
    if config.kl_coefficient:
        if reference_logprobs is None:
            raise ValueError("a KL coefficient needs reference log-probabilities")
        penalties = k3(logprobs, reference_logprobs)
        losses = losses + config.kl_coefficient * penalties
        kl = penalties.detach().mean()
    metrics = {
        "clip_fraction": (clipped != ratio).float().mean().item(),
        "kl": kl.item(),
        "ratio_mean": ratio.detach().mean().item(),
    }
    return (weights * losses).sum(), metrics


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Schulman's third estimator of KL(pi_theta || pi_0): exp(d) - d - 1 with d = log pi_0 - log pi_theta."""
    difference = (reference_logprobs - logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return difference.exp() - difference - 1


def token_weights(lengths: list[int], aggregation: Aggregation) -> list[float]:
    """The weight of a token of each trajectory, given the policy tokens of all in the step.

    Over the whole step the weights make the sum of token losses into the chosen mean,
    whatever the micro-batches.
    """
    count, total = len(lengths), sum(lengths)
    if aggregation == "token_sum":
        return [1.0 / count] * count
    if aggregation == "token_mean":
        return [1.0 / total] * count
    return [1.0 / (count * length) for length in lengths]
