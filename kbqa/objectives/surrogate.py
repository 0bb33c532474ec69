"""The clipped surrogate with a KL penalty, over policy tokens only.

Shapes: all tensors are [M], the M tokens at which the mask of a batch is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["token_sum", "token_sum_norm", "token_mean", "sample_mean"]

# Bound on log-ratios, which keeps exp() of a diverged token finite.
_MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, slots=True)
class SurrogateConfig:
    """Settings of the loss.

    Attributes:
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        kl_coefficient: beta, the weight of the K3 estimate against the reference.
        aggregation: how token losses become one number. `token_sum` divides by the number of
            trajectories (KG-R1 sums over tokens), `token_sum_norm` by `horizon` alone (KG-R1's
            released script, verl's seq-mean-token-sum-norm), `token_mean` by the number of tokens.
            `sample_mean` first averages over the tokens of each sample: for a trajectory this is
            KnowCoder-A1's 1 / |tau|, for a step of a tree ISP-KGR's mean over an action.
        dual_clip: c > 1; the loss of a token with a negative advantage A is at most -c A, however
            likely the token has become (dual clip; 10 in KBQA-R1's released script). None for no
            bound.
        entropy_coefficient: weight of the entropy bonus.
        horizon: constant of `token_sum_norm`, in tokens.
        importance_cap: C > 0; a token is weighted by min(rho, C), where rho = pi_proximal / pi_behaviour
            corrects for the engine and the version that wrote it (truncated importance sampling, as in
            IMPALA, Espeholt et al. 2018, and fengyao.notion.site/off-policy-rl). The clipped ratio is then
            pi_theta / pi_proximal: it bounds what the mini-batches of an update change, and the cap bounds
            the effect of old samples (the decoupled objective, Hilton et al. 2022). None for no correction.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_coefficient: float = 0.0
    aggregation: Aggregation = "token_sum"
    dual_clip: float | None = None
    entropy_coefficient: float = 0.0
    horizon: int = 4096
    importance_cap: float | None = None


def surrogate_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    config: SurrogateConfig,
    *,
    weights: Tensor,
    reference_logprobs: Tensor | None = None,
    entropies: Tensor | None = None,
    proximal_logprobs: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """KG-R1's objective (section 3.3), negated so that it is minimised.

    loss = sum_i w_i (-min(rho_i A_i, clip(rho_i, 1 - l, 1 + h) A_i) + beta K3_i - gamma H_i)

    Args:
        logprobs: log pi_theta of each token, differentiable.
        behaviour_logprobs: log pi_old, as recorded when the token was sampled.
        advantages: A of each token.
        weights: w of each token, from `token_weights`; they carry the aggregation.
        reference_logprobs: log pi_0; needed if the KL coefficient is not 0.
        entropies: H of each token's distribution, differentiable; needed if its
            coefficient is not 0.
        proximal_logprobs: log pi_proximal under the weights with which the update began; used with a cap
            only. None if those are the current weights.

    Returns:
        The loss (a scalar) and metrics: clip_fraction, of that clip_low_fraction and clip_high_fraction, kl,
        ratio_mean, ratio_max; with a cap capped_fraction.
    """
    log_ratio = (logprobs - behaviour_logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    metrics = {"ratio_mean": ratio.detach().mean().item(), "ratio_max": ratio.detach().max().item()}
    if config.importance_cap is not None:
        proximal = logprobs.detach() if proximal_logprobs is None else proximal_logprobs
        correction = (proximal - behaviour_logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
        advantages = advantages * correction.clamp(max=config.importance_cap)
        metrics["capped_fraction"] = (correction > config.importance_cap).float().mean().item()
        ratio = (logprobs - proximal).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    losses = -torch.minimum(ratio * advantages, clipped * advantages)
    if config.dual_clip is not None:
        bounded = torch.minimum(losses, -config.dual_clip * advantages)
        losses = torch.where(advantages < 0, bounded, losses)
    kl = logprobs.new_zeros(())
    if config.kl_coefficient:
        if reference_logprobs is None:
            raise ValueError("a KL coefficient needs reference log-probabilities")
        penalties = k3(logprobs, reference_logprobs)
        losses = losses + config.kl_coefficient * penalties
        kl = penalties.detach().mean()
    if config.entropy_coefficient:
        if entropies is None:
            raise ValueError("an entropy coefficient needs entropies")
        losses = losses - config.entropy_coefficient * entropies
    metrics["clip_low_fraction"] = (clipped > ratio).float().mean().item()
    metrics["clip_high_fraction"] = (clipped < ratio).float().mean().item()
    metrics["clip_fraction"] = metrics["clip_low_fraction"] + metrics["clip_high_fraction"]
    metrics["kl"] = kl.item()
    return (weights * losses).sum(), metrics


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Schulman's third estimator of KL(pi_theta || pi_0): exp(d) - d - 1 with d = log pi_0 - log pi_theta."""
    difference = (reference_logprobs - logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return difference.exp() - difference - 1


def token_weights(lengths: list[int], aggregation: Aggregation, horizon: int = 4096) -> list[float]:
    """The weight of each sample's tokens, from the numbers of policy tokens of all samples in a step.

    With these weights, the sum of token losses over the whole step is the chosen aggregate,
    independent of the division into micro-batches.
    """
    count, total = len(lengths), sum(lengths)
    if aggregation == "token_sum":
        return [1.0 / count] * count
    if aggregation == "token_sum_norm":
        return [1.0 / horizon] * count
    if aggregation == "token_mean":
        return [1.0 / total] * count
    return [1.0 / (count * length) for length in lengths]
