"""The graph that a command uses: on a kg_server if one is given, otherwise opened in this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kbqa.errors import GraphNotFoundError

if TYPE_CHECKING:
    from kbqa.datasets.catalog import Dataset
    from kbqa.kg.catalog import GraphCatalog
    from kbqa.kg.tools import ListedGraphTools, LocalGraphTools

KgServerUrl = Annotated[
    str | None,
    typer.Option(
        "--kg-server",
        metavar="URL",
        help="Ask the graph of this kg_server (default: open the graph in this process). The key comes from "
        "KBQA_KG_SERVER_API_KEY.",
    ),
]


class AskedGraph(NamedTuple):
    """A graph and the tools to use it.

    Attributes:
        version: version of the graph; None if the graph is not needed.
    """

    tools: ListedGraphTools
    name: str
    version: str | None


def local_tools(catalog: GraphCatalog, home: Path) -> LocalGraphTools:
    """Tools over a catalog, with the encoder and limits of a kg_server in this environment.

    Raises:
        ConfigurationError, EncoderUnavailableError: as at the start of a kg_server.
    """
    from kbqa.kg.ranking.ranker import Schemas
    from kbqa.kg.tools import LocalGraphTools
    from services.kg_server.settings import KgServerSettings

    settings = KgServerSettings.load(home=home)
    return LocalGraphTools(
        catalog,
        schemas=Schemas(settings.open_encoder(), home / "encodings"),
        max_items=settings.max_items,
        deadline_s=settings.query_deadline_s,
    )


@contextmanager
def open_graph(
    dataset: Dataset, home: Path, *, kg: str | None = None, kg_server: str | None = None, needed: bool = True
) -> Iterator[AskedGraph]:
    """The graph of a data set; if the data set contains none, the graph loaded in `home`.

    Args:
        kg: use this loaded graph instead of the data set's.
        kg_server: URL of a kg_server that has the graph; None opens it in this process.
        needed: whether the graph is used at all; if not, it is not opened.

    Raises:
        GraphNotFoundError: the graph is neither loaded nor part of the data set.
        GraphLoadError: the data set's graph cannot be read.
        GraphUnavailableError: the kg_server does not answer.
        ConfigurationError, EncoderUnavailableError: see `local_tools`.
    """
    from kbqa.kg.catalog import GraphCatalog
    from kbqa.kg.client import HttpGraphTools

    name = kg or dataset.kg
    if kg_server is not None:
        with HttpGraphTools(kg_server, api_key=os.environ.get("KBQA_KG_SERVER_API_KEY")) as served:
            versions = {graph.name: graph.version for graph in served.graphs()}
            if name not in versions:
                raise GraphNotFoundError(name, list(versions))
            yield AskedGraph(served, name, versions[name])
        return
    brought = kg is None and (dataset.graph_file is not None or dataset.graph is not None)
    with (
        tempfile.TemporaryDirectory(prefix="kbqa-graph-") as apart,
        closing(GraphCatalog(Path(apart) if brought else home)) as catalog,
    ):
        if brought and needed:
            file = dataset.graph_file
            if file is None:
                file = Path(apart) / "graph.tsv"
                file.write_text(dataset.graph or "", encoding="utf-8")
            catalog.load(name, file)
        version = catalog.get(name).version if needed else None
        yield AskedGraph(local_tools(catalog, home), name, version)
