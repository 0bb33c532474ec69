"""Decides which of several paths a question means: the one whose relations match its words best.

Model 1 of Brown et al. (1993, "The Mathematics of Statistical Machine Translation"), with a path in place
of the sentence that a question was translated from. Each word comes from one of the path's hops or from
none of them, with equal probability:

    P(words | path) = prod_w mean_{h in path or none} P(w | h)
    P(path) ~ exp(-HOP_COST * hops - BACK_COST * hops that go straight back)

P(w | h) is estimated by EM over all questions and all their paths. This works because questions with the
same words mean the same relations, while the paths that lead to their answers by chance differ.
"""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter

from kbqa.trajectory import Hop

HOP_COST = 1.0
"""In nats per hop. There are more long paths than short ones, and so more that are right by chance."""

BACK_COST = 2.0
"""In nats per hop that follows the previous hop's relation backwards. Some questions mean this, such as
MetaQA's films of the same director; most such paths are another path with a detour."""

_ROUNDS = 5
_ADDED = 0.01  # to every count
_NEGLIGIBLE = 1e-4

_WORD = re.compile(r"\w+|[^\w\s]")

Path = tuple[Hop, ...]


def likeliest(texts: Sequence[str], paths: Sequence[Sequence[Path]], seed: int) -> list[Path | None]:
    """The most probable path of each question, ties at random; None for a question without paths.

    Args:
        texts: wordings of questions, without the names of their topics.
        paths: the candidate paths of each question; there may be none.
    """
    words = [_WORD.findall(text.casefold()) for text in texts]
    rng = random.Random(f"wording/{seed}")
    drawn = [rng.sample(several, len(several)) for several in paths]
    # A question with one path teaches what its words mean, so it takes part.
    chances = [[1.0 / len(several) for _ in several] for several in drawn]
    translation = _Translation({word for said in words for word in said})
    for _ in range(_ROUNDS):
        translation = translation.estimated(words, drawn, chances)
        chances = [translation.chances(said, several) for said, several in zip(words, drawn, strict=True)]
    return [
        max(zip(chance, several, strict=True), key=itemgetter(0))[1] if several else None
        for chance, several in zip(chances, drawn, strict=True)
    ]


class _Translation:
    """P(word | hop), with None for no hop; uniform before anything was counted."""

    def __init__(self, vocabulary: set[str]) -> None:
        self._vocabulary = vocabulary
        self._counts: defaultdict[tuple[str, Hop | None], float] = defaultdict(float)
        self._totals: defaultdict[Hop | None, float] = defaultdict(float)

    def probability(self, word: str, hop: Hop | None) -> float:
        count, total = self._counts.get((word, hop), 0.0), self._totals.get(hop, 0.0)
        return (count + _ADDED) / (total + _ADDED * len(self._vocabulary))

    def estimated(
        self,
        words: Sequence[Sequence[str]],
        paths: Sequence[Sequence[Path]],
        chances: Sequence[Sequence[float]],
    ) -> _Translation:
        """A step of EM: each word is counted for hops in proportion to how well they explain it."""
        counted = _Translation(self._vocabulary)
        for said, several, chance in zip(words, paths, chances, strict=True):
            for path, weight in zip(several, chance, strict=True):
                if weight < _NEGLIGIBLE:
                    continue
                hops = (None, *path)
                for word in said:
                    shares = [self.probability(word, hop) for hop in hops]
                    scale = weight / sum(shares)
                    for hop, share in zip(hops, shares, strict=True):
                        counted._counts[word, hop] += scale * share
                        counted._totals[hop] += scale * share
        return counted

    def chances(self, said: Sequence[str], paths: Sequence[Path]) -> list[float]:
        """P(path | words) of each path."""
        if len(paths) < 2:
            return [1.0] * len(paths)
        logs = [self._log_likelihood(said, path) - _cost(path) for path in paths]
        most = max(logs)
        weights = [math.exp(log - most) for log in logs]
        return [weight / sum(weights) for weight in weights]

    def _log_likelihood(self, said: Sequence[str], path: Path) -> float:
        hops = (None, *path)
        return sum(math.log(sum(self.probability(word, hop) for hop in hops) / len(hops)) for word in said)


def _cost(path: Path) -> float:
    """The cost of a path in nats, independent of words."""
    back = sum(a.relation == b.relation and a.inverse != b.inverse for a, b in pairwise(path))
    return HOP_COST * len(path) + BACK_COST * back
