"""Likelihood and gradients of sequences that share prefixes, beside transformers on each sequence as a whole.

Processor time of one thread, which a busy machine hardly changes. The other side gets what makes it fast:
sequences sorted by length, in padded batches of the best of several sizes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from kbqa.training.likelihood import likelihood_of, token_logprobs
from kbqa.training.packing import pack
from kbqa.training.sft import micro_batches, pad

Tokens = tuple[int, ...]
Sample = tuple[Tokens, int]
"""A sequence, and its first policy token."""

_VOCABULARY, _ROUNDS = 2048, 3
_BUDGETS = (1024, 4096)  # tokens of a row, or of a padded batch


def measure() -> list[str]:
    """Lines of a report."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # As in `benchmarks.trl_step`, with four heads to each head of keys.
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=_VOCABULARY,
            hidden_size=192,
            intermediate_size=704,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=1,
            tie_word_embeddings=True,
        )
    )
    return [_compared(name, samples, model) for name, samples in _batches().items()]


def _compared(name: str, samples: Sequence[Sample], model: Any) -> str:
    ours, theirs = (
        min((partial(way, model, samples, budget) for budget in _BUDGETS), key=_seconds)
        for way in (_in_rows, _padded)
    )
    seconds = [(_seconds(ours), _seconds(theirs)) for _ in range(_ROUNDS)]
    our_s, their_s = (median(column) for column in zip(*seconds, strict=True))
    tokens = sum(len(ids) for ids, _ in samples)
    return (
        f"likelihood and gradients, {name}, in processor time of one thread: {tokens / our_s:,.0f} tokens/s, "
        f"as padded sequences {tokens / their_s:,.0f}, ratio {their_s / our_s:.2f}"
    )


def _seconds(step: Callable[[], None]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


def _in_rows(model: Any, samples: Sequence[Sample], budget: int) -> None:
    likelihood = likelihood_of(model)
    for row in pack([ids for ids, _ in samples], _masks(samples), budget):
        likelihood(row)[0].sum().backward()


def _padded(model: Any, samples: Sequence[Sample], budget: int) -> None:
    masks = _masks(samples)
    for batch in micro_batches([len(ids) for ids, _ in samples], budget):
        ids = pad([samples[index][0] for index in batch], torch.long)
        mask = pad([masks[index] for index in batch], torch.bool)
        token_logprobs(model, ids, mask)[0].sum().backward()  # type: ignore[no-untyped-call]


def _masks(samples: Sequence[Sample]) -> list[list[bool]]:
    return [[position >= first for position in range(len(ids))] for ids, first in samples]


def _batches() -> dict[str, list[Sample]]:
    rng = random.Random(0)
    return {
        "a group of 8, prompt 320, completions 96": _group(rng, 320, 96),
        "a group of 8, prompt 32, completions 384": _group(rng, 32, 384),
        "a tree of 60 steps": _tree(rng, 60),
    }


def _drawn(rng: random.Random, count: int) -> Tokens:
    return tuple(rng.randrange(_VOCABULARY) for _ in range(count))


def _group(rng: random.Random, prompt: int, completion: int) -> list[Sample]:
    head = _drawn(rng, prompt)
    return [(head + _drawn(rng, completion), prompt) for _ in range(8)]


def _tree(rng: random.Random, steps: int) -> list[Sample]:
    """The paths to the steps of a tree below a prompt of 120 tokens; of four branches, one goes on."""
    stems, samples = [_drawn(rng, 120)], list[Sample]()
    while len(samples) < steps:
        stem = stems.pop(0)
        branches = [stem + _drawn(rng, rng.randint(10, 60)) for _ in range(4)]
        samples += [(branch, len(stem)) for branch in branches]
        stems += rng.sample(branches, 1 if stems else 2)
    return samples
