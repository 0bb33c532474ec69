"""Log-probabilities of given tokens under a policy: a causal language model or a chooser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss
from torch.utils.checkpoint import checkpoint

from kbqa.policies.base import Truncation
from kbqa.policies.chooser.model import Chooser
from kbqa.policies.chooser.reading import Decision, decisions
from kbqa.policies.truncation import truncated
from kbqa.training.attention import attend_by_segments
from kbqa.training.packing import Row

Precision = Literal["fp32", "bf16"]

_WHOLE = Truncation()
# Maximum number of logits kept for the backward pass (1 GiB in fp32). A row with more of them is projected
# to the vocabulary in parts, and each part is computed again for its gradient.
_MAX_LOGITS = 2**28


def token_logprobs(
    model: Any,
    token_ids: Tensor,
    mask: Tensor,
    *,
    entropy_gradient: bool = False,
    temperature: float = 1.0,
    truncation: Truncation = _WHOLE,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy at masked tokens, each from the tokens before it.

    Both refer to the distribution that tokens are sampled from, so that ratios to behaviour
    log-probabilities compare like with like. With a truncation, the nucleus is that of `model`; the
    sampled token always counts as part of it.

    Hidden states are projected to the vocabulary only where the mask is set. Padding is on the right,
    so causal attention never sees it.

    Args:
        token_ids: [B, T].
        mask: [B, T], bool; never set at position 0.
        entropy_gradient: whether the entropy is differentiable.
        temperature, truncation: with which the tokens were drawn.

    Returns:
        Two tensors [M], in row order: log p of the token, and the entropy of its distribution.
    """
    hidden = model.model(input_ids=token_ids, use_cache=False).last_hidden_state
    chosen = partial(_chosen, entropy_gradient, temperature, truncation)
    return _scores(model, chosen, hidden[:, :-1][mask[:, 1:]], token_ids[:, 1:][mask[:, 1:]])


Chosen = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Log-probabilities of targets [M], and entropies, from logits [M, V]."""


class Likelihood(nn.Module):
    """A model as a function from rows of sequences to the likelihood of their policy tokens.

    It is one module with one `forward`, because FSDP gathers parameters where a forward begins.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def layers(self) -> Iterable[nn.Module]:
        """The layers, each of which is sharded by itself."""
        raise NotImplementedError

    def score(self, row: Row, chosen: Chosen) -> tuple[Tensor, Tensor]:
        """Apply `chosen` to the logits at the row's targets, in their order."""
        raise NotImplementedError

    def forward(
        self,
        row: Row,
        *,
        precision: Precision = "fp32",
        entropy_gradient: bool = False,
        temperature: float = 1.0,
        truncation: Truncation = _WHOLE,
    ) -> tuple[Tensor, Tensor]:
        """As `token_logprobs`, in the order of the row's targets.

        Args:
            precision: of matrix products; with bf16, weights, norms and results are still fp32.
        """
        chosen = partial(_chosen, entropy_gradient, temperature, truncation)
        with torch.autocast(row.token_ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
            return self.score(row, chosen)


def likelihood_of(model: Any) -> Likelihood:
    """The likelihood of a model, according to its kind."""
    if isinstance(model, Likelihood):
        return model
    return ChoiceLikelihood(model) if isinstance(model, Chooser) else TokenLikelihood(model)


class TokenLikelihood(Likelihood):
    """The likelihood of a causal language model of transformers."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        attend_by_segments(model)

    @property
    def layers(self) -> Iterable[nn.Module]:
        layers: Iterable[nn.Module] = self.model.model.layers
        return layers

    def score(self, row: Row, chosen: Chosen) -> tuple[Tensor, Tensor]:
        model: Any = self.model
        hidden = model.model(
            input_ids=row.token_ids[None],
            position_ids=row.positions[None],
            use_cache=False,
            segments=row.segments,
        ).last_hidden_state[0]
        return _scores(model, chosen, hidden[row.sources], row.targets)


class ChoiceLikelihood(Likelihood):
    """The likelihood of a chooser, whose tokens are options. Each distinct decision is computed once."""

    @property
    def layers(self) -> Iterable[nn.Module]:
        layers: Iterable[nn.Module] = self.model.bert.encoder.layer
        return layers

    def score(self, row: Row, chosen: Chosen) -> tuple[Tensor, Tensor]:
        listed: dict[int, Decision] = {}
        for start, first, sequence in row.sequences():
            for position, decision in decisions(sequence, self.model.vocabulary):
                if position >= first:
                    listed[start + position - first] = decision
        asked = [listed[source] for source in row.sources.tolist()]
        distinct = {decision: place for place, decision in enumerate(dict.fromkeys(asked))}
        logits = self.model(list(distinct)).float()[[distinct[decision] for decision in asked]]
        columns = [
            [option.token for option in decision.options].index(token)
            for decision, token in zip(asked, row.targets.tolist(), strict=True)
        ]
        return chosen(logits, torch.tensor(columns, device=logits.device))


def _scores(model: Any, chosen: Chosen, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Apply `chosen` to the logits of the hidden states [M, width] before the targets [M], in parts."""
    score = partial(_projected, model.lm_head, chosen)
    most = max(1, _MAX_LOGITS // model.config.vocab_size)
    if len(targets) <= most:
        return score(hidden, targets)
    split = zip(torch.split(hidden, most), torch.split(targets, most), strict=True)
    parts = [checkpoint(score, states, wanted, use_reentrant=False) for states, wanted in split]
    return torch.cat([logprobs for logprobs, _ in parts]), torch.cat([entropy for _, entropy in parts])


def _projected(head: Any, chosen: Chosen, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Apply `chosen` to the logits of the hidden states [M, width] before the targets [M]."""
    return chosen(head(hidden).float(), targets)


def _chosen(
    entropy_gradient: bool, temperature: float, truncation: Truncation, logits: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of targets [M] and entropies, from logits [M, V]; -inf excludes a token."""
    if temperature != 1:
        logits = logits / temperature
    logprobs = torch.log_softmax(truncated(logits, truncation, targets), dim=-1)
    chosen = -nll_loss(logprobs, targets, reduction="none")
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        # A token of probability 0 adds nothing, but 0 * -inf is NaN.
        finite = logprobs.masked_fill(logprobs.isneginf(), 0.0)
        entropy = -(logprobs.exp() * finite).sum(-1)
    return chosen, entropy
