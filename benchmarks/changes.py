"""Ten thousand inserts and deletes into a graph that is asked meanwhile; then its server is killed.

Takes some minutes and 0.3 GB of disk for each million triples.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.graph_server import write_bodies
from benchmarks.large_graph import write_graph
from benchmarks.load import Load, drive, serving, why_no_wrk
from kbqa.kg.catalog import GraphCatalog

# KBQA_BENCHMARK_TRIPLES=20000000 measures the size that is aimed at.
_TRIPLES = 1_000_000
_BATCHES, _PER_BATCH = 1_000, 5  # each inserts as many as it deletes
_LOOKED_AT = 20  # batches of which one is looked for in every way
_LOOKS_S = 30  # shorter than the changes take
_KILLS, _LIVES_S = 20, 2.0  # a server lives at most that long after it is ready


def measure() -> list[str]:
    """Lines of a report."""
    missing = why_no_wrk()
    if missing:
        return [f"changes: {missing}"]
    size = int(os.environ.get("KBQA_BENCHMARK_TRIPLES", _TRIPLES))
    with tempfile.TemporaryDirectory() as directory:
        home, file = Path(directory), Path(directory) / "graph.tsv"
        bodies = write_bodies(home / "bodies.jsonl", write_graph(file, size), 1)
        catalog = GraphCatalog(home)
        triples = catalog.load("graph", file).triples
        catalog.close()
        with (
            serving(["-m", "services.kg_server", "--home", str(home)], "/readyz") as (url, _),
            httpx.Client(base_url=f"{url}/v1/kg/graph", timeout=600) as client,
            ThreadPoolExecutor(1) as threads,
        ):
            _is_linked(client, "nobody")  # the linker of the base is made once
            _look(url, bodies)  # brings the files into memory
            quiet = _look(url, bodies)
            changing = threads.submit(_change, client)
            busy = _look(url, bodies)
            if changing.done():
                raise RuntimeError(
                    f"the changes took less than {_LOOKS_S} s: look-ups were not asked meanwhile"
                )
            changed, seen = changing.result()
        kills = _kill(home)
    published = statistics.quantiles(changed, n=100)
    return [
        f"changes of a graph of {triples:,} triples: {_BATCHES} batches of {2 * _PER_BATCH} inserts and "
        f"deletes, published in {statistics.median(changed) * 1000:.0f} ms, p99 "
        f"{published[98] * 1000:.0f} ms",
        f"  seen by look-ups, SPARQL and linker after {statistics.median(seen) * 1000:.0f} ms, at most "
        f"{max(seen) * 1000:.0f} ms (target: 1000)",
        f"  one-hop look-ups: p99 {quiet.p99_ms:.2f} ms without changes, {busy.p99_ms:.2f} ms meanwhile: "
        f"{busy.p99_ms / quiet.p99_ms:.2f} times (target: 2)",
        f"  {_KILLS} times SIGKILL while it changes: after {kills.broken} of them a batch was lost or half "
        f"done (target: 0), {kills.published} were published; ready again after "
        f"{statistics.median(kills.ready_s):.1f} s, at most {max(kills.ready_s):.1f} s",
    ]


@dataclass
class _Kills:
    """What servers that were killed left behind.

    Attributes:
        published: batches.
        broken: kills after which a batch was lost or half done.
        ready_s: seconds that each next server took to start.
    """

    published: int
    broken: int
    ready_s: list[float]


def _kill(home: Path) -> _Kills:
    """Kill servers at random moments while batches are sent, each of which replaces the one before."""
    rng, kills = random.Random(1), _Kills(0, 0, [])
    batches, published, sent = itertools.count(_BATCHES), _BATCHES - 1, _BATCHES
    for _ in range(_KILLS + 1):
        began = time.perf_counter()
        with (
            serving(["-m", "services.kg_server", "--home", str(home)], "/readyz") as (url, pid),
            httpx.Client(base_url=f"{url}/v1/kg/graph", timeout=600) as client,
        ):
            kills.ready_s.append(time.perf_counter() - began)
            there = [sum(_is_known(client, name) for name in _names(batch)) for batch in (published, sent)]
            if there == [0, _PER_BATCH]:  # published, although the server could not say so any more
                published = sent
            elif there != [_PER_BATCH, 0]:
                kills.broken += 1
            killing = threading.Timer(rng.uniform(0, _LIVES_S), os.kill, (pid, signal.SIGKILL))
            killing.start()
            try:
                for sent in batches:
                    _send(client, sent, instead_of=published)
                    published = sent
                    kills.published += 1
            except httpx.HTTPError:
                killing.join()
    return kills


def _look(url: str, bodies: Path) -> Load:
    """One-hop look-ups one after the other, nothing kept."""
    path = f"{url}/v1/kg/graph/actions"
    return drive(path, bodies, clients=1, seconds=_LOOKS_S, cache_control="no-store")


def _change(client: httpx.Client) -> tuple[list[float], list[float]]:
    """Seconds until each batch was published, and until some of them were seen in every way."""
    published, seen = [], []
    for batch in range(_BATCHES):
        began = time.perf_counter()
        _send(client, batch, instead_of=batch - 1)
        published.append(time.perf_counter() - began)
        if batch % _LOOKED_AT == 0:
            for is_seen in (_is_known, _is_queried, _is_linked):
                while not is_seen(client, _names(batch)[0]):
                    time.sleep(0.01)
            seen.append(time.perf_counter() - began)
    return published, seen


def _send(client: httpx.Client, batch: int, instead_of: int) -> None:
    body = {"insert": _facts(_names(batch)), "delete": _facts(_names(instead_of))}
    client.post("/changes", json=body).raise_for_status()


def _names(batch: int) -> list[str]:
    return [f"Newcomer {batch} {n}" for n in range(_PER_BATCH)]


def _facts(names: list[str]) -> str:
    return "".join(f"{name}\trelation 1\tEntity {n} of the graph\n" for n, name in enumerate(names))


def _is_known(client: httpx.Client, name: str) -> bool:
    action = {"action": "get_tail_relations", "entity": name}
    [result] = client.post("/actions", json={"actions": [action]}).json()["results"]
    return bool(result["status"] == "ok")


def _is_queried(client: httpx.Client, name: str) -> bool:
    query = f"ASK {{ <urn:kbqa:e:{name.replace(' ', '%20')}> ?r ?o }}"
    return bool(client.get("/sparql", params={"query": query}).json().get("boolean"))


def _is_linked(client: httpx.Client, name: str) -> bool:
    action = {"action": "link_entities", "question": f'Who knows "{name}"?'}
    [result] = client.post("/actions", json={"actions": [action]}).json()["results"]
    return any(item["id"] == name for item in result.get("items", []))
