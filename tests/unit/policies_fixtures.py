"""A small tokenizer and model, and a policy that recites."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kbqa.policies.base import Completion, FinishReason, SamplingParams
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.kg_r1 import KgR1
from kbqa.training.small_policy import SmallPolicyConfig, build_model, train_tokenizer

TINY = SmallPolicyConfig(vocabulary=320, layers=2, width=32, heads=2, feed_forward=64, max_length=256)


def make_tokenizer():
    return train_tokenizer(
        ["who is the parent of Ada ?", "get_tail_entities"] * 3, KgR1().tags, TINY.vocabulary
    )


def make_codec() -> TokenizerCodec:
    return TokenizerCodec(make_tokenizer())


def make_model(seed: int = 0):
    return build_model(make_tokenizer(), TINY, seed).eval()


def counted_steps(model, pause_s: float) -> list[float]:
    """The times of a model's steps, in a list that grows; each takes a pause longer."""
    steps: list[float] = []

    def step(*_) -> None:
        steps.append(time.monotonic())
        time.sleep(pause_s)

    model.model.register_forward_hook(step)
    return steps


class ScriptedPolicy:
    """Recites: turn k of every episode is `script(prompt text)`."""

    max_length = 4096

    def __init__(self, codec: TokenizerCodec, script: Callable[[str], str]) -> None:
        self._codec, self._script = codec, script
        self.prompts: list[list[int]] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, *, deadline=None, cancelled=None
    ) -> list[Completion]:
        from kbqa.trajectory import Segment

        completions = []
        for prompt in prompts:
            self.prompts.append(list(prompt))
            ids = self._codec.encode([Segment(self._script(self._codec.decode(prompt)))])
            cut = ids[: params.max_tokens]
            reason = FinishReason.STOP if len(cut) == len(ids) else FinishReason.LENGTH
            completions.append(Completion(tuple(cut), tuple(-0.1 for _ in cut), reason, "v000001-scripted"))
        return completions
