"""The in-process engine beside transformers' own `generate`, on the shape of a rollout.

Sixteen questions of eight samples, three turns each: every turn's prompt is the last one
plus what was written plus an observation. `generate` gets each turn as one padded batch,
which is the best that it can do without knowing of the turns before.
"""

from __future__ import annotations

import random
import time

import torch

from kbqa.policies.base import SamplingParams
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.transformers import TransformersPolicy
from kbqa.protocols.kg_r1 import KgR1
from kbqa.training.small_policy import SmallPolicyConfig, build_model, train_tokenizer

_QUESTIONS, _SAMPLES, _TURNS = 16, 8, 3
_PROMPT, _WRITTEN, _OBSERVED = 60, 24, 30  # tokens


def measure() -> list[str]:
    """Lines of a report."""
    tokenizer = train_tokenizer(["who is the parent of Ada ?"], KgR1().tags, 2048)
    model = build_model(tokenizer, SmallPolicyConfig(), seed=0).eval()
    rng = random.Random(0)
    first = [[rng.randrange(20, 260) for _ in range(_PROMPT)] for _ in range(_QUESTIONS)]
    prompts = [list(prompt) for prompt in first for _ in range(_SAMPLES)]
    ours = _ours(model, TokenizerCodec(tokenizer), [list(p) for p in prompts], random.Random(1))
    theirs = _transformers(model, prompts, random.Random(1))
    tokens = _QUESTIONS * _SAMPLES * _TURNS * _WRITTEN
    return [
        f"engine: {tokens / ours:,.0f} generated tokens/s, transformers.generate {tokens / theirs:,.0f}, "
        f"ratio {theirs / ours:.2f} (target: above 1)"
    ]


def _ours(model: object, codec: TokenizerCodec, prompts: list[list[int]], rng: random.Random) -> float:
    engine = TransformersPolicy(model, codec, "v", max_rows=128, cached_tokens=200_000)
    began = time.perf_counter()
    for _ in range(_TURNS):
        completions = engine.generate(prompts, SamplingParams(_WRITTEN, max_total_tokens=700, seed=1))
        for prompt, completion in zip(prompts, completions, strict=True):
            prompt.extend(completion.token_ids)
            prompt.extend(rng.randrange(20, 260) for _ in range(_OBSERVED))
    seconds = time.perf_counter() - began
    engine.close()
    return seconds


def _transformers(model: object, prompts: list[list[int]], rng: random.Random) -> float:
    began = time.perf_counter()
    for _ in range(_TURNS):
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            output = model.generate(  # type: ignore[attr-defined]
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                min_new_tokens=_WRITTEN,
                max_new_tokens=_WRITTEN,
            )
        prompts = [[*row, *(rng.randrange(20, 260) for _ in range(_OBSERVED))] for row in output.tolist()]
    return time.perf_counter() - began
