"""One-hop actions over the generated world: in process, and beside the same look-ups in SPARQL."""

from __future__ import annotations

import random
import time

from pyoxigraph import NamedNode, Quad, Store

from kbqa.datasets.world import generate_world
from kbqa.kg.actions import GET_TAIL_ENTITIES, Action
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools

_BATCH, _BATCHES, _QUERIES = 64, 500, 2000


def measure() -> list[str]:
    """Lines of a report."""
    triples = generate_world(seed=1, size=5.0).triples
    rng = random.Random(0)
    tools = LocalGraphTools(FixedGraphs({"world": OxigraphStore.from_triples(list(triples))}))
    batches = [
        [
            Action(GET_TAIL_ENTITIES, {"entity": head, "relation": relation})
            for head, relation, _ in rng.choices(triples, k=_BATCH)
        ]
        for _ in range(_BATCHES)
    ]
    began = time.perf_counter()
    for batch in batches:
        tools.execute("world", batch)
    ours = _BATCH * _BATCHES / (time.perf_counter() - began)

    names = {name: NamedNode(f"urn:x:{i}") for i, name in enumerate({n for t in triples for n in t})}
    store = Store()
    store.extend(Quad(names[h], names[r], names[t]) for h, r, t in triples)
    queries = [
        f"SELECT ?x WHERE {{ {names[h]} {names[r]} ?x }}" for h, r, _ in rng.choices(triples, k=_QUERIES)
    ]
    began = time.perf_counter()
    for query in queries:
        list(store.query(query))  # type: ignore[arg-type]
    theirs = _QUERIES / (time.perf_counter() - began)
    return [
        f"one-hop actions over {len(triples):,} triples, in process, batches of {_BATCH}: {ours:,.0f}/s; "
        f"the same look-ups as SPARQL in pyoxigraph: {theirs:,.0f}/s, ratio {ours / theirs:.1f}"
    ]
