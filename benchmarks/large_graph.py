"""A generated graph of twenty million triples beside a small one of the same kind: look-ups, and linking.

Takes twenty minutes and 12 GB of disk, so that `make bench` leaves it out: `make bench-large`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.graph_server import write_bodies
from benchmarks.load import Load, drive, resident_bytes, serving, why_no_wrk
from kbqa.kg.naming import ENTITY_NAMESPACE, RELATION_NAMESPACE

# KBQA_BENCHMARK_TRIPLES=100000000 measures a larger one.
_SMALL, _LARGE = 130_000, 20_000_000
_TRIPLES_PER_ENTITY, _RELATIONS = 5, 200
_CHUNK = 1_000_000
_ACTIONS = 100_000
_ROUNDS = 5
_QUESTIONS = 100

_LOAD = """
import json, resource, sys, time
from pathlib import Path
from kbqa.kg.catalog import GraphCatalog
began = time.perf_counter()
catalog = GraphCatalog(Path(sys.argv[1]))
triples = catalog.load("graph", Path(sys.argv[2])).triples
seconds = time.perf_counter() - began
peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
print(json.dumps({"triples": triples, "seconds": seconds, "peak_gb": peak_gb}))
catalog.close()
"""


_LOAD_ALONE = """
import json, sys, time
from pyoxigraph import RdfFormat, Store
began = time.perf_counter()
store = Store(sys.argv[1])
store.bulk_load(path=sys.argv[2], format=RdfFormat.N_TRIPLES)
print(json.dumps(time.perf_counter() - began))
"""


@dataclass(frozen=True)
class _Graph:
    """A graph that has been loaded.

    Attributes:
        seconds, peak_gb: of loading.
        alone_s: seconds of Oxigraph alone, which loads the same triples as N-Triples and makes no index.
        index_bytes, store_bytes: a triple.
        bodies: file of actions on it.
    """

    home: Path
    bodies: Path
    triples: int
    seconds: float
    peak_gb: float
    alone_s: float
    index_bytes: float
    store_bytes: float


@dataclass(frozen=True)
class _Linking:
    """How long it takes to find what a question names.

    Attributes:
        first_s: the first question of all.
        known_ms, unknown_ms: medians of questions about entities, and about names that no entity has.
    """

    first_s: float
    known_ms: float
    unknown_ms: float


@dataclass(frozen=True)
class _Served:
    graph: _Graph
    url: str
    pid: int
    rounds: list[Load]
    linking: _Linking

    @property
    def p50_ms(self) -> float:
        return statistics.median(load.p50_ms for load in self.rounds)

    @property
    def p99_ms(self) -> float:
        return statistics.median(load.p99_ms for load in self.rounds)


def measure() -> list[str]:
    """Lines of a report."""
    missing = why_no_wrk()
    if missing:
        return [f"large graph: {missing}"]
    sizes = _SMALL, int(os.environ.get("KBQA_BENCHMARK_TRIPLES", _LARGE))
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        small, large = served = [_serve(_load(Path(directory) / str(size), size), stack) for size in sizes]
        for _ in range(_ROUNDS):  # in turn, so that what else the machine does meets both
            for each in served:
                each.rounds.append(_drive(each.url, each.graph.bodies))
        return [
            *map(_line, served),
            f"  p99 over that of the small graph, medians of {_ROUNDS} rounds in turn: "
            f"{large.p99_ms / small.p99_ms:.2f} (target: 2)",
            f"  a thousand million such triples need {large.graph.index_bytes:.0f} GB of index, "
            f"{large.graph.store_bytes:.0f} GB of store",
        ]


def _load(home: Path, size: int) -> _Graph:
    home.mkdir()
    file = home / "graph.tsv"
    bodies = write_bodies(home / "bodies.jsonl", write_graph(file, size), 1)
    loaded = _printed_by(_LOAD, home, file)
    # The files are large: each is removed as soon as it has been read.
    _write_n_triples(file, home / "graph.nt")
    file.unlink()
    alone_s = _printed_by(_LOAD_ALONE, home / "alone", home / "graph.nt")
    (home / "graph.nt").unlink()
    shutil.rmtree(home / "alone")
    index, store = (
        sum(part.stat().st_size for part in home.glob(f"graphs/graph/*/{name}/*"))
        for name in ("index", "store")
    )
    triples = loaded["triples"]
    return _Graph(
        home, bodies, **loaded, alone_s=alone_s, index_bytes=index / triples, store_bytes=store / triples
    )


def _printed_by(program: str, *arguments: Path) -> Any:
    """What a program prints, in a process of its own, so that its peak of memory is that of loading."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def _write_n_triples(tabs: Path, path: Path) -> None:
    with tabs.open() as lines, path.open("w") as file:
        for line in lines:
            head, relation, tail = line.rstrip("\n").replace(" ", "%20").split("\t")
            file.write(
                f"<{ENTITY_NAMESPACE}{head}> <{RELATION_NAMESPACE}{relation}> <{ENTITY_NAMESPACE}{tail}> .\n"
            )


def _serve(graph: _Graph, stack: ExitStack) -> _Served:
    command = ["-m", "services.kg_server", "--home", str(graph.home)]
    url, pid = stack.enter_context(serving(command, "/readyz"))
    _drive(url, graph.bodies)  # brings the files into memory
    return _Served(graph, url, pid, [], _link(url))


def _link(url: str) -> _Linking:
    with httpx.Client(base_url=f"{url}/v1/kg/graph", timeout=600) as client:

        def seconds(question: str) -> float:
            action = {"action": "link_entities", "question": question}
            began = time.perf_counter()
            client.post("/actions", json={"actions": [action]}).raise_for_status()
            return time.perf_counter() - began

        first_s = seconds("Who knows Nobody Special?")
        known = [seconds(f"Who knows {_entity(number)}?") for number in range(_QUESTIONS)]
        unknown = [seconds(f"What does Brewster {number} know?") for number in range(_QUESTIONS)]
    return _Linking(first_s, 1000 * statistics.median(known), 1000 * statistics.median(unknown))


def _drive(url: str, bodies: Path) -> Load:
    return drive(f"{url}/v1/kg/graph/actions", bodies, clients=1, cache_control="no-store")


def _line(served: _Served) -> str:
    graph, linking = served.graph, served.linking
    return (
        f"graph of {graph.triples:,} triples: loaded in {graph.seconds:.0f} s, peak {graph.peak_gb:.1f} GB "
        f"(Oxigraph alone {graph.alone_s:.0f} s, ratio {graph.seconds / graph.alone_s:.1f}); "
        f"index {graph.index_bytes:.0f}, store {graph.store_bytes:.0f} bytes a triple; server "
        f"{resident_bytes(served.pid) / 1e9:.2f} GB resident; one hop, nothing kept: "
        f"p50 {served.p50_ms:.2f} ms, p99 {served.p99_ms:.2f} ms; the first question linked after "
        f"{linking.first_s:.2f} s, others after {linking.known_ms:.1f} ms, with an unknown name "
        f"{linking.unknown_ms:.1f} ms"
    )


def write_graph(path: Path, triples: int) -> list[dict[str, str]]:
    """Write a graph in which some relations and tails are frequent; returns actions that find something."""
    rng = np.random.default_rng(0)
    entities = triples // _TRIPLES_PER_ENTITY
    actions: list[dict[str, str]] = []
    with path.open("w") as file:
        for start in range(0, triples, _CHUNK):
            size = min(_CHUNK, triples - start)
            heads = rng.integers(0, entities, size).tolist()
            relations = ((rng.zipf(1.3, size) - 1) % _RELATIONS).tolist()
            tails = (rng.random(size) ** 3 * entities).astype(int).tolist()
            file.write(
                "".join(
                    f"{_entity(head)}\trelation {relation}\t{_entity(tail)}\n"
                    for head, relation, tail in zip(heads, relations, tails, strict=True)
                )
            )
            for place in range(0, size, max(triples // _ACTIONS, 1)):
                head, relation = _entity(heads[place]), f"relation {relations[place]}"
                actions.append({"action": "get_tail_relations", "entity": head})
                actions.append({"action": "get_tail_entities", "entity": head, "relation": relation})
    return actions


def _entity(number: int) -> str:
    return f"Entity {number} of the graph"
