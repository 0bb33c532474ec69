"""python -m kbqa.kg.changes.compaction HOME GRAPH: writes a graph that changed whole."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

from kbqa.errors import KbqaError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.changes.graph_changes import GraphChanges

_NICENESS = 10  # look-ups go first


def main(home: str, graph: str) -> None:
    os.nice(_NICENESS)
    with closing(GraphCatalog(Path(home))) as catalog:
        try:
            GraphChanges(catalog).compact(graph)
        except KbqaError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
