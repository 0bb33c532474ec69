"""A small tokenizer and model, and a policy that recites."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence

from kbqa.policies.base import Completion, FinishReason, Ranking, SamplingParams
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.kg_r1 import KgR1
from kbqa.training.small_policy import SmallPolicyConfig, build_model, train_tokenizer
from kbqa.trajectory import Segment

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
        completions = []
        for prompt in prompts:
            self.prompts.append(list(prompt))
            ids = self._codec.encode([Segment(self._script(self._codec.decode(prompt)))])
            cut = ids[: params.max_tokens]
            reason = FinishReason.STOP if len(cut) == len(ids) else FinishReason.LENGTH
            completions.append(Completion(tuple(cut), tuple(-0.1 for _ in cut), reason, "v000001-scripted"))
        return completions


class RankingScript(ScriptedPolicy):
    """Prefers options as a table says: the last option that was taken → the next → its weight.

    Options are their words without blanks.

    Args:
        ratings: the first option that an episode took → the rating of the episode; 0 if it is not listed.
    """

    def __init__(
        self,
        codec: TokenizerCodec,
        table: Mapping[str, Mapping[str, float]],
        ratings: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(codec, lambda prompt: "<0>")
        self._table, self._ratings, self.asked = table, ratings or {}, 0
        self.rated_episodes = 0

    def ranked(self, prompts, *, deadline=None, cancelled=None) -> list[Ranking]:
        return [self._ranked(self._codec.decode(prompt)) for prompt in prompts]

    def generate(self, prompts, params, *, deadline=None, cancelled=None) -> list[Completion]:
        return [ranking.completions[0] for ranking in self.ranked(prompts)]

    def rated(self, episodes) -> list[float]:
        self.rated_episodes += len(episodes)
        taken = [_said(self._codec.decode(episode))[1] for episode in episodes]
        return [self._ratings.get(options[0], 0.0) if options else 0.0 for options in taken]

    def _ranked(self, prompt: str) -> Ranking:
        self.asked += 1
        said, taken = _said(prompt)
        table = self._table.get(taken[-1] if taken else "", {})
        weights = {number: table.get(words, 1e-6) for number, words in said[-1].items()}
        total = sum(weights.values())
        completions = [
            Completion(
                tuple(self._codec.encode([Segment(f"<{number}>")])),
                (math.log(weight / total),),
                FinishReason.STOP,
                "v000001-ranking",
            )
            for number, weight in sorted(weights.items(), key=lambda item: -item[1])
        ]
        declining = sum(weight for number, weight in weights.items() if said[-1][number] == "noneofthese")
        return Ranking(completions, declining / total)


def _said(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """The options of each turn, by their numbers, and those that were taken."""
    lists = re.findall(r"<options>(.*?)</options>(?:<(\d+)>)?", text.replace(" ", ""))
    said = [dict(re.findall(r"<(\d+)>(?:<\w+>)*([^<]*)", options)) for options, _ in lists]
    return said, [options[number] for options, (_, number) in zip(said, lists, strict=True) if number]
