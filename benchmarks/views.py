"""Actions on a view beside the same ones on the whole graph, and what writing a view costs."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from kbqa.datasets.world import generate_world
from kbqa.kg.actions import GET_TAIL_ENTITIES, LINK_ENTITIES, Action
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.files import GraphSource
from kbqa.kg.loading.views import ViewLimits
from kbqa.kg.tools import LocalGraphTools

_BATCH, _BATCHES = 64, 200


def measure() -> list[str]:
    """Lines of a report."""
    triples = generate_world(seed=1, size=5.0).triples
    rng = random.Random(0)
    relations = sorted({relation for _, relation, _ in triples})
    shown = set(rng.sample(relations, len(relations) // 2))
    kept = [triple for triple in triples if triple[1] in shown]
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "world.tsv"
        path.write_text("".join("\t".join(triple) + "\n" for triple in triples))
        catalog = GraphCatalog(Path(home) / "graphs")
        load_s = _seconds(lambda: catalog.load("world", GraphSource([path])))
        limits = ViewLimits(relations=tuple(shown))
        view_s = _seconds(lambda: catalog.make_view("world", "half", limits))
        tools = LocalGraphTools(catalog)
        lines = [
            f"writing a view of {len(kept):,} of {len(triples):,} triples: {view_s:.2f} s; "
            f"loading the graph: {load_s:.2f} s, ratio {view_s / load_s:.2f}"
        ]
        for name, action in _ACTIONS.items():
            batches = [[action(*triple) for triple in rng.choices(kept, k=_BATCH)] for _ in range(_BATCHES)]
            seconds: dict[str, list[float]] = {"world": [], "world@half": []}
            for batch in batches:
                for graph, spent in seconds.items():  # in turn, so that a busy moment costs both
                    spent.append(_seconds(partial(tools.execute, graph, batch)))
            whole, view = (_BATCH / median(spent) for spent in seconds.values())
            lines.append(
                f"{name}, in process, batches of {_BATCH}: view {view:,.0f}/s; whole graph {whole:,.0f}/s, "
                f"ratio {view / whole:.2f}"
            )
        catalog.close()
    return lines


_ACTIONS: dict[str, Callable[[str, str, str], Action]] = {
    "one-hop actions": lambda head, relation, _: Action(
        GET_TAIL_ENTITIES, {"entity": head, "relation": relation}
    ),
    "names linked": lambda head, _, __: Action(LINK_ENTITIES, {"question": f"what about {head} ?"}),
}


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
