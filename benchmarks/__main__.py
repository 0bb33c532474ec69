"""python -m benchmarks [NAME …]; without a name all but those that take long or that need more."""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks import (
    answer,
    changes,
    corrections,
    endpoint,
    engine,
    fleet,
    gateway,
    gating,
    gpu,
    graph,
    graph_server,
    hub,
    in_flight,
    large_graph,
    mfu,
    promotions,
    rows,
    trl_step,
    views,
    vllm,
)

_USUAL: dict[str, Callable[[], list[str]]] = {
    "answer": answer.measure,
    "endpoint": endpoint.measure,
    "engine": engine.measure,
    "gating": gating.measure,
    "graph": graph.measure,
    "graph-server": graph_server.measure,
    "hub": hub.measure,
    "rows": rows.measure,
    "in-flight": in_flight.measure,
    "views": views.measure,
}
_ALL = _USUAL | {
    "changes": changes.measure,
    "corrections": corrections.measure,
    "fleet": fleet.measure,
    "gateway": gateway.measure,
    "gpu": gpu.measure,
    "large-graph": large_graph.measure,
    "mfu": mfu.measure,
    "promotions": promotions.measure,
    "trl": trl_step.measure,
    "vllm": vllm.measure,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in _ALL]
    if unknown:
        sys.stderr.write(f"no benchmark named {unknown[0]} (known: {', '.join(_ALL)})\n")
        return 2
    for name in names or _USUAL:
        for line in _ALL[name]():
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
