"""Batches of one-hop actions over HTTP, beside a bare handler over dictionaries on the same machine."""

from __future__ import annotations

import json
import os
import random
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import httpx

from benchmarks.load import Load, drive, serving, why_no_wrk
from kbqa.datasets.world import generate_world
from kbqa.kg.actions import GET_HEAD_ENTITIES, GET_HEAD_RELATIONS, GET_TAIL_ENTITIES, GET_TAIL_RELATIONS
from kbqa.kg.catalog import GraphCatalog

Triple = tuple[str, str, str]

_ACTIONS = 200_000  # drawn, and sent again and again
_ROUNDS, _SECONDS = 3, 5
_BATCHES = {64: "target: 100,000/s, p99 under 10 ms", 1: "target: 4,000/s"}


def measure() -> list[str]:
    """Lines of a report."""
    missing = why_no_wrk()
    if missing:
        return [f"graph server: {missing}"]
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        name, triples = _graph()
        file = home / "graph.txt"
        file.write_text("".join("|".join(triple) + "\n" for triple in triples), encoding="utf-8")
        catalog = GraphCatalog(home)
        catalog.load("graph", file)
        catalog.close()
        actions = draw_actions(triples, _ACTIONS)
        bodies = {size: write_bodies(home / f"{size}.jsonl", actions, size) for size in _BATCHES}
        ours = serving(["-m", "services.kg_server", "--home", str(home)], "/readyz")
        bare = serving(["-m", "benchmarks.bare_server", str(file)], "/ready")
        with ours as (our_url, _), bare as (bare_url, _):
            lines = [f"graph server: {len(triples):,} triples ({name}), 4 clients"]
            _post_all(_endpoint(our_url), bodies[64])
            for size, path in bodies.items():
                lines.append(
                    f"  batches of {size}: {_compare(our_url, bare_url, path, size)} ({_BATCHES[size]})"
                )
    return lines


def _compare(our_url: str, bare_url: str, bodies: Path, size: int) -> str:
    """In turn, so that whatever else the machine does is done to both; the median of each."""
    kept, not_kept, bare = [], [], []
    before = _cache_counts(our_url)
    for _ in range(_ROUNDS):
        kept.append(drive(_endpoint(our_url), bodies, seconds=_SECONDS))
        bare.append(drive(_endpoint(bare_url), bodies, seconds=_SECONDS))
    hits, misses = (now - then for now, then in zip(_cache_counts(our_url), before, strict=True))
    for _ in range(_ROUNDS):
        not_kept.append(drive(_endpoint(our_url), bodies, seconds=_SECONDS, cache_control="no-store"))
    ratio = _median(kept).per_second / _median(bare).per_second
    return (
        f"{_rate(kept, size)}, {hits / (hits + misses):.0%} of the answers kept; nothing kept: "
        f"{_rate(not_kept, size)}; bare handler: {_rate(bare, size)}; ratio {ratio:.2f}"
    )


def draw_actions(triples: Iterable[Triple], number: int) -> list[dict[str, str]]:
    """One-hop actions that find something: of any entity the same share, whatever its degree."""
    possible: dict[str, dict[tuple[str, str | None], None]] = {}
    for head, relation, tail in triples:
        for entity, of_relations, of_entities in (
            (head, GET_TAIL_RELATIONS, GET_TAIL_ENTITIES),
            (tail, GET_HEAD_RELATIONS, GET_HEAD_ENTITIES),
        ):
            actions = possible.setdefault(entity, {})
            actions[of_relations, None] = actions[of_entities, relation] = None
    rng = random.Random(0)
    entities = {entity: list(actions) for entity, actions in possible.items()}
    drawn = []
    for entity in rng.choices(list(entities), k=number):
        action, followed = rng.choice(entities[entity])
        drawn.append({"action": action, "entity": entity} | ({"relation": followed} if followed else {}))
    return drawn


def write_bodies(path: Path, actions: Sequence[Mapping[str, object]], size: int) -> Path:
    """Actions as the bodies of requests of `size` actions each, one a line."""
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, len(actions) - size + 1, size):
            file.write(json.dumps({"actions": actions[start : start + size]}) + "\n")
    return path


def _graph() -> tuple[str, Sequence[Triple]]:
    data = os.environ.get("KBQA_DATA")
    if data is None:
        return "the generated world, KBQA_DATA being unset", generate_world(seed=1, size=5.0).triples
    lines = (Path(data) / "metaqa" / "kb.txt").read_text(encoding="utf-8").split("\n")
    split = (line.split("|") for line in lines if line)
    triples: dict[Triple, None] = dict.fromkeys((head, relation, tail) for head, relation, tail in split)
    return "MetaQA", list(triples)


def _endpoint(url: str) -> str:
    return f"{url}/v1/kg/graph/actions"


def _post_all(endpoint: str, bodies: Path) -> None:
    with httpx.Client() as client, bodies.open("rb") as lines:
        for body in lines:
            client.post(endpoint, content=body).raise_for_status()


def _cache_counts(url: str) -> tuple[float, float]:
    """(hits, misses) so far."""
    text = httpx.get(f"{url}/metrics").text
    hits, misses = (
        sum(map(float, re.findall(rf'cache_requests_total{{.*outcome="{outcome}".*}} (\S+)', text)))
        for outcome in ("hit", "miss")
    )
    return hits, misses


def _median(loads: Sequence[Load]) -> Load:
    return sorted(loads, key=lambda load: load.per_second)[len(loads) // 2]


def _rate(loads: Sequence[Load], size: int) -> str:
    load = _median(loads)
    return f"{load.per_second * size:,.0f} actions/s, p99 {load.p99_ms:.1f} ms"
