"""Model FLOP utilisation of our training step on a GPU: random-weight Qwen2, sequences of 4,096 tokens.

The share of the GPU's peak that goes into the matrix products of the model, by the usual count:
6 for each parameter and token (those of the embedding left out, since looking up is no
product), and 12 x layers x width x the mean length that is attended to. What gradient
checkpointing computes again is not counted.
"""

from __future__ import annotations

import random
import time
from statistics import median
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from kbqa.objectives import SurrogateConfig
from kbqa.training.grpo import GrpoConfig, grpo_step, make_optimiser
from kbqa.training.ranks import Ranks
from kbqa.training.throughput import peak
from kbqa.trajectory import TrainingSample

# As Qwen2.5 0.5B and 1.5B: width, feed-forward, layers, heads, key-value heads.
_SIZES = {"0.5B": (896, 4864, 24, 14, 2), "1.5B": (1536, 8960, 28, 12, 2)}
_VOCABULARY, _SEQUENCE, _SAMPLES, _ROUNDS = 151_936, 4096, 8, 5
_PROMPT = 512


def measure() -> list[str]:
    """Lines of a report; one that says why where there is no known GPU."""
    if not torch.cuda.is_available():
        return ["MFU: not measured, there is no GPU"]
    device, most = torch.cuda.get_device_name(), peak(torch.device("cuda"))
    if most is None:
        return [f"MFU: not measured, the peak of {device} is not known"]
    return [
        f"MFU on {device}, {name}: {_utilisation(size, most):.2f} (target: 0.4)"
        for name, size in _SIZES.items()
    ]


def flops(parameters: int, layers: int, width: int, sequence: int) -> float:
    """Of one sequence, forwards and backwards, under causal attention."""
    return sequence * (6.0 * parameters + 12.0 * layers * width * sequence / 2)


def _utilisation(size: tuple[int, int, int, int, int], peak: float) -> float:
    model, ranks = _model(*size), Ranks.join()
    config = GrpoConfig(
        token_budget=2 * _SEQUENCE, precision="bf16", surrogate=SurrogateConfig(aggregation="token_mean")
    )
    optimiser, samples = make_optimiser(model, config), _samples()
    seconds = []
    for _ in range(_ROUNDS + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        grpo_step(model, optimiser, samples, config, ranks=ranks)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    parameters = sum(p.numel() for p in model.model.layers.parameters())
    width, _, layers, *_ = size
    # The vocabulary is projected to from policy tokens alone.
    head = 6.0 * _VOCABULARY * width * (_SEQUENCE - _PROMPT)
    done = _SAMPLES * (flops(parameters, layers, width, _SEQUENCE) + head)
    return done / median(seconds[1:]) / peak


def _model(width: int, feed_forward: int, layers: int, heads: int, kv_heads: int) -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=_VOCABULARY,
        hidden_size=width,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=_SEQUENCE,
        tie_word_embeddings=True,
    )
    with torch.device("cuda"):
        return Qwen2ForCausalLM(config)


def _samples() -> list[TrainingSample]:
    """Sequences that share nothing, so that every token that is counted is computed."""
    rng = random.Random(0)
    mask = (False,) * _PROMPT + (True,) * (_SEQUENCE - _PROMPT)
    return [
        TrainingSample(
            tuple(rng.randrange(_VOCABULARY) for _ in range(_SEQUENCE)),
            mask,
            tuple(-12.0 * one for one in mask),
            tuple(rng.gauss(0, 1) * one for one in mask),
        )
        for _ in range(_SAMPLES)
    ]
