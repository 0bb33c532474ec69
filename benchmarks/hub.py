"""An entity with a million edges over fifty relations: what its degree costs those who look it up."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.graph_server import write_bodies
from benchmarks.load import drive, serving, why_no_wrk
from kbqa.kg.actions import GET_HEAD_ENTITIES, GET_HEAD_RELATIONS, GET_TAIL_ENTITIES, GET_TAIL_RELATIONS
from kbqa.kg.catalog import GraphCatalog

_EDGES, _RELATIONS = 1_000_000, 50


def measure() -> list[str]:
    """Lines of a report."""
    missing = why_no_wrk()
    if missing:
        return [f"hub: {missing}"]
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        file = home / "graph.txt"
        with file.open("w") as text:
            for number in range(_EDGES // 2):
                relation = f"relation {number % _RELATIONS}"
                text.write(f"hub\t{relation}\tentity {number}\nentity {number}\t{relation}\thub\n")
        catalog = GraphCatalog(home)
        began = time.perf_counter()
        catalog.load("graph", file)
        load_s = time.perf_counter() - began
        catalog.close()
        relations = [
            {"action": action, "entity": "hub"} for action in (GET_TAIL_RELATIONS, GET_HEAD_RELATIONS)
        ]
        pages = [
            {"action": action, "entity": "hub", "relation": f"relation {number}", "limit": 100}
            for action in (GET_TAIL_ENTITIES, GET_HEAD_ENTITIES)
            for number in range(_RELATIONS)
        ]
        bodies = {
            "relations": write_bodies(home / "relations.jsonl", relations, 1),
            "first page of 100 entities": write_bodies(home / "pages.jsonl", pages, 1),
        }
        lines = [f"hub: {_EDGES:,} edges over {_RELATIONS} relations, loaded in {load_s:.0f} s"]
        with serving(["-m", "services.kg_server", "--home", str(home)], "/readyz") as (url, _):
            for what, path in bodies.items():
                load = drive(f"{url}/v1/kg/graph/actions", path, clients=1, cache_control="no-store")
                times = f"p50 {load.p50_ms:.2f} ms, p99 {load.p99_ms:.2f} ms"
                lines.append(f"  {what}, nothing kept: {times} (target: p99 under 5 ms)")
    return lines
