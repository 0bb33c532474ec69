"""The same SPARQL queries and actions on the embedded store, and on a Virtuoso beside it.

Queries also with the cache warm.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyoxigraph as ox

from kbqa.datasets.world import generate_world
from kbqa.kg.actions import Action, ActionResult, Success
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.endpoint.record import Endpoint, ServerKind
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.loading.facts import named_quad
from kbqa.kg.naming import entity_iri, relation_iri
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.store import GraphStore
from kbqa.kg.tools import LocalGraphTools
from tests.sparql_servers import Virtuoso

_QUERIES, _ACTIONS = 200, 100
_GRAPH = "urn:kbqa:benchmark"
Triples = Sequence[tuple[str, str, str]]


def measure() -> list[str]:
    """Lines of a report."""
    if missing := Virtuoso.missing():
        return [f"endpoint: not measured, {missing}"]
    name, triples = _triples()
    queries = _queries(triples)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "graph.txt").write_text("".join("\t".join(triple) + "\n" for triple in triples))
        pool = QueryPool(size=1)
        catalog = GraphCatalog(home, queries=pool)
        catalog.load("graph", home / "graph.txt")
        server = Virtuoso(home)
        try:
            ox.serialize(
                (named_quad(*triple).triple for triple in triples),
                str(home / "graph.nt"),
                format=ox.RdfFormat.N_TRIPLES,
            )
            server.load(home / "graph.nt", _GRAPH)
            endpoint = Endpoint(server.url, (_GRAPH,), ServerKind.VIRTUOSO)
            # The first has its plans made and its pages read; the second has asked nothing yet.
            first, second, third = (EndpointStore(endpoint, version="v", queries=pool) for _ in range(3))
            embedded = catalog.get("graph")
            _answers(embedded, queries), _answers(first, queries)
            local, remote = _timed(embedded, queries), _timed(second, queries)
            warm = _timed(second, queries)
            same = _answers(embedded, queries) == _answers(second, queries)
            acted = _compare_actions(embedded, third, triples)
            for store in (first, second, third):
                store.close()
        finally:
            server.kill()
            catalog.close()
    ratio = statistics.median(remote) / statistics.median(local)
    return [
        f"endpoint: {_QUERIES} SPARQL queries of 1 to 3 hops over {name} ({len(triples):,} triples), ms "
        f"median/p95: embedded {_figures(local)}, Virtuoso {_figures(remote)}, ratio {ratio:.1f}; "
        f"warm cache in process {_figures(warm)}; answers {'the same' if same else 'DIFFER'}",
        *acted,
    ]


def _triples() -> tuple[str, Triples]:
    """MetaQA where it is at hand, else the generated world."""
    data = os.environ.get("KBQA_DATA")
    file = Path(data, "metaqa", "kb.txt") if data else None
    if file is None or not file.exists():
        return "the generated world", generate_world(seed=1, size=5.0).triples
    lines = file.read_text().splitlines()
    return "MetaQA", [(head, relation, tail) for head, relation, tail in (line.split("|") for line in lines)]


def _queries(triples: Triples) -> list[str]:
    """Paths of 1 to 3 hops, each from a place in the graph, with a count now and then."""
    rng = random.Random(0)
    outgoing: dict[str, list[tuple[str, str]]] = {}
    for head, relation, tail in triples:
        outgoing.setdefault(head, []).append((relation, tail))
    queries: list[str] = []
    while len(queries) < _QUERIES:
        start = at = rng.choice(triples)[0]
        hops = []
        for hop in range(1 + len(queries) % 3):
            if at not in outgoing:
                break
            relation, at = rng.choice(outgoing[at])
            subject = f"<{entity_iri(start)}>" if hop == 0 else f"?x{hop}"
            hops.append(f"{subject} <{relation_iri(relation)}> ?x{hop + 1}")
        what = (
            f"(COUNT(DISTINCT ?x{len(hops)}) AS ?n)" if len(queries) % 10 == 9 else f"DISTINCT ?x{len(hops)}"
        )
        queries.append(f"SELECT {what} WHERE {{ {' . '.join(hops)} }}")
    return queries


def _compare_actions(embedded: GraphStore, remote: GraphStore, triples: Triples) -> list[str]:
    """A line for each kind of action; each action is executed once, in turn on both stores."""
    tools = LocalGraphTools(FixedGraphs({"embedded": embedded, "remote": remote}))
    milliseconds: dict[str, tuple[list[float], list[float]]] = {}
    differ = Counter[str]()
    for head, relation, tail in random.Random(1).sample(list(triples), _ACTIONS):
        by_name = _actions(head, relation, tail)
        by_iri = _actions(entity_iri(head), relation_iri(relation), entity_iri(tail))
        for one, other in zip(by_name, by_iri, strict=True):
            local, remotely = milliseconds.setdefault(one.name, ([], []))
            found: list[ActionResult] = []
            for graph, action, taken in (("embedded", one, local), ("remote", other, remotely)):
                began = time.perf_counter()
                found += tools.execute(graph, [action])
                taken.append((time.perf_counter() - began) * 1000)
            differ[one.name] += len({len(r.items) if isinstance(r, Success) else None for r in found}) > 1
    return [f"  {_ACTIONS} actions of each kind, none cached, ms median/p95:"] + [
        f"    {name}: embedded {_figures(local)}, Virtuoso {_figures(remotely)}, ratio "
        f"{statistics.median(remotely) / statistics.median(local):.0f}; "
        f"{differ[name]} with another number of items"
        for name, (local, remotely) in milliseconds.items()
    ]


def _actions(head: str, relation: str, tail: str) -> list[Action]:
    """One of each kind, about a fact."""
    return [
        Action("get_tail_relations", {"entity": head}),
        Action("get_tail_entities", {"entity": head, "relation": relation}),
        Action("node_relations", {"node": head, "question": "who is it about ?"}),
        Action("follow_path", {"entity": tail, "path": [f"^{relation}"]}),
        Action("entity_distance", {"set_a": [head], "set_b": [tail]}),
        Action("describe", {"entity": head}),
    ]


def _timed(store: GraphStore, queries: Sequence[str]) -> list[float]:
    """Milliseconds of each query."""
    return [_milliseconds(partial(store.query, query, deadline_s=30)) for query in queries]


def _milliseconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


def _answers(store: GraphStore, queries: Sequence[str]) -> list[set[str]]:
    return [
        {
            json.dumps(row, sort_keys=True)
            for row in json.loads(store.query(query, deadline_s=30).body)["results"]["bindings"]
        }
        for query in queries
    ]


def _figures(milliseconds: Sequence[float]) -> str:
    return f"{statistics.median(milliseconds):.2f}/{statistics.quantiles(milliseconds, n=20)[-1]:.2f}"
