"""Balanced samples: rare kinds get equal numbers as far as possible, or are up-sampled.

KnowCoder-A1 balances one- and two-hop questions of WebQSP, and up-samples the rare types of CWQ and
GrailQA's questions without topic entity, both for its cold start and for reinforcement learning (4.2.1, 4.3).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def balanced(items: Sequence[T], kind: Callable[[T], str], count: int | None, rng: random.Random) -> list[T]:
    """At most `count` items, none twice, and equally many of each kind as far as it has enough.

    Args:
        count: None takes as many of each kind as the rarest has.
    """
    kinds: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        kinds[kind(item)].append(item)
    for members in kinds.values():
        rng.shuffle(members)
    if count is None:
        count = len(kinds) * min(map(len, kinds.values()), default=0)
    chosen: list[T] = []
    while len(chosen) < count and kinds:
        for name in sorted(kinds):
            if len(chosen) == count:
                break
            chosen.append(kinds[name].pop())
            if not kinds[name]:
                del kinds[name]
    return chosen


def quotas(counts: Mapping[str, float], total: int, strength: float) -> dict[str, int]:
    """How many of `total` draws each kind gets, in proportion to its count ** (1 - strength).

    Args:
        counts: by kind, positive; or any other weights.
        strength: 0 keeps each kind's natural share, 1 gives equal shares.

    >>> quotas({"count": 1, "path": 9}, 10, 1.0), quotas({"count": 1, "path": 9}, 10, 0.5)
    ({'count': 5, 'path': 5}, {'count': 3, 'path': 7})
    """
    weights = {kind: count ** (1 - strength) for kind, count in sorted(counts.items())}
    scale = total / sum(weights.values())
    exact = {kind: weight * scale for kind, weight in weights.items()}
    shares = {kind: int(share) for kind, share in exact.items()}
    # The largest remainders get what rounding down has left over.
    by_remainder = sorted(exact, key=lambda kind: (shares[kind] - exact[kind], kind))
    for kind in by_remainder[: total - sum(shares.values())]:
        shares[kind] += 1
    return shares
