"""Demonstrations as examples to imitate, under names that never come again.

A small model that sees 150 episodes learns their names by heart. Under another
random name each time it can only learn to copy.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbqa.cold_start.demonstrations import Demonstration
from kbqa.environment.layout import opening_ids, shown_ids
from kbqa.policies.base import Codec
from kbqa.training.sft import Example

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_RIVALS = 3  # names of which the longest is drawn
_PART = re.compile(r"[^\W\d_]+|\d")


@dataclass(frozen=True, slots=True)
class MadeUpNames:
    """Where other names of entities come from.

    Attributes:
        words: pieces of words to make new ones from, such as the letters-only tokens of a
            vocabulary; single letters are used where there are none.
        known: names of other entities, spelled as those of the graph are: with accents, with
            digits, with tokens that no made-up name has.
        share: of the names that are drawn from those. Where it is not 0 the others are made up in
            the shape of one of those, not of the name that they replace.
    """

    words: Sequence[str]
    known: Sequence[str] = ()
    share: float = 0.0

    def draw(self, name: str, rng: random.Random) -> str:
        """Another name for `name`."""
        if not self.known or not self.share:
            return fresh_name(name, self.words, rng)
        # Long names are rare, and hard to copy.
        model = max(rng.choices(self.known, k=_RIVALS), key=len)
        return model if rng.random() < self.share else fresh_name(model, self.words, rng)


def fresh_name(name: str, words: Sequence[str], rng: random.Random) -> str:
    """A random name of the same shape: other words, other digits, the same punctuation.

    Args:
        words: as those of `MadeUpNames`.
    """

    def replace(match: re.Match[str]) -> str:
        part = match.group(0)
        if part.isdigit():
            return str(rng.randrange(10))
        pieces = 1 if len(part) <= 4 else rng.randint(1, 3)
        return "".join(rng.choice(words or _LETTERS) for _ in range(pieces))

    return _PART.sub(replace, name)


def example(demonstration: Demonstration, codec: Codec, max_observation_tokens: int | None = None) -> Example:
    """Token ids and mask, encoded passage by passage as an episode is.

    Args:
        max_observation_tokens: longer observations are cut and closed again; None leaves them whole.
    """
    ids: list[int] = []
    mask: list[bool] = []
    tokens: list[int] = []
    for number, passage in enumerate(demonstration.passages):
        if number == 0:
            tokens = opening_ids(codec, passage.segments)
        elif passage.by_policy:
            tokens = codec.encode(passage.segments)
        else:
            tokens = shown_ids(codec, tokens, passage.segments, max_observation_tokens).token_ids
        ids.extend(tokens)
        mask.extend([passage.by_policy and passage.imitated] * len(tokens))
    return Example(tuple(ids), tuple(mask))


def draw_examples(
    demonstrations: Sequence[Demonstration],
    count: int,
    codec: Codec,
    names: MadeUpNames,
    rng: random.Random,
    max_observation_tokens: int | None = None,
) -> list[Example]:
    """`count` random demonstrations, each under other names; see `example`."""
    drawn = rng.choices(demonstrations, k=count)
    return [example(under_other_names(one, names, rng), codec, max_observation_tokens) for one in drawn]


def under_other_names(demonstration: Demonstration, names: MadeUpNames, rng: random.Random) -> Demonstration:
    """The same episode about other entities."""
    return demonstration.renamed({name: names.draw(name, rng) for name in demonstration.names})


def epochs(
    demonstrations: Sequence[Demonstration], times: int, rng: random.Random
) -> Iterator[Demonstration]:
    """All of them so many times, each time in another order."""
    for _ in range(times):
        yield from rng.sample(demonstrations, len(demonstrations))
