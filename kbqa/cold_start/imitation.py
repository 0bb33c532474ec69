"""Demonstrations as training examples, with new names of entities each time.

A small model that sees 150 episodes memorises their names. With another random
name each time, it can only learn to copy.
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
_RIVALS = 3  # names drawn, of which the longest is taken
_PART = re.compile(r"[^\W\d_]+|\d")


@dataclass(frozen=True, slots=True)
class MadeUpNames:
    """A source of other names for entities.

    Attributes:
        words: pieces of words to make new ones from, such as the letters-only tokens of a
            vocabulary; single letters are used if there are none.
        known: names of other entities, spelled as in the graph: with accents, with digits, with
            tokens that made-up names lack.
        share: share of names drawn from `known`. If it is not 0, the other names are made up in the
            shape of a known name, not of the name that they replace.
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
        words: as in `MadeUpNames`.
    """

    def replace(match: re.Match[str]) -> str:
        part = match.group(0)
        if part.isdigit():
            return str(rng.randrange(10))
        pieces = 1 if len(part) <= 4 else rng.randint(1, 3)
        return "".join(rng.choice(words or _LETTERS) for _ in range(pieces))

    return _PART.sub(replace, name)


def example(demonstration: Demonstration, codec: Codec, max_observation_tokens: int | None = None) -> Example:
    """Token ids and mask, encoded passage by passage as in an episode.

    Args:
        max_observation_tokens: maximum tokens of an observation between its tags; None cuts nothing.
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


def under_other_names(demonstration: Demonstration, names: MadeUpNames, rng: random.Random) -> Demonstration:
    """The same episode with other names of entities."""
    return demonstration.renamed({name: names.draw(name, rng) for name in demonstration.names})


def epochs(
    demonstrations: Sequence[Demonstration], times: int, rng: random.Random
) -> Iterator[Demonstration]:
    """All demonstrations, `times` times, each time in another order."""
    for _ in range(times):
        yield from rng.sample(demonstrations, len(demonstrations))
