"""Opens the graphs that a command uses: those of a kg_server if one is given, otherwise in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kbqa.errors import GraphNotFoundError
from services.cli.options import data_directory

if TYPE_CHECKING:
    from kbqa.datasets import Graph
    from kbqa.kg.catalog import GraphCatalog
    from kbqa.kg.store import Graphs
    from kbqa.kg.tools import ListedGraphTools, LocalGraphTools

KgServerUrl = Annotated[
    str | None,
    typer.Option(
        "--kg-server",
        metavar="URL",
        help="Ask the graphs of this kg_server (default: open them in this process). The key comes from "
        "KBQA_KG_SERVER_API_KEY.",
    ),
]


class AskedGraphs(NamedTuple):
    """Graphs and the tools to use them.

    Attributes:
        versions: of the graphs, by name.
    """

    tools: ListedGraphTools
    versions: Mapping[str, str]


def local_tools(graphs: Graphs, home: Path) -> LocalGraphTools:
    """Tools over graphs, with the encoder and limits of a kg_server in this environment.

    Raises:
        ConfigurationError, EncoderUnavailableError: as at the start of a kg_server.
    """
    from kbqa.kg.ranking.ranker import Schemas
    from kbqa.kg.tools import LocalGraphTools
    from services.kg_server.settings import KgServerSettings

    settings = KgServerSettings.load(home=home)
    return LocalGraphTools(
        graphs,
        schemas=Schemas(settings.open_encoder(), home / "encodings"),
        max_items=settings.max_items,
        deadline_s=settings.query_deadline_s,
        longest_s=settings.query_deadline_max_s,
    )


@contextmanager
def open_graphs(
    graphs: Sequence[Graph], home: Path, *, kg_server: str | None = None
) -> Iterator[AskedGraphs]:
    """The graphs of a data set; those that it does not include have to be loaded in `home`.

    Args:
        kg_server: URL of a kg_server that has all of them; None opens them in this process.

    Raises:
        GraphNotFoundError: a graph is neither loaded nor included.
        GraphLoadError: an included graph cannot be read.
        GraphUnavailableError: the kg_server does not answer.
        ConfigurationError, EncoderUnavailableError: see `local_tools`.
    """
    from kbqa.kg.catalog import FixedGraphs, GraphCatalog
    from kbqa.kg.client import HttpGraphTools
    from kbqa.kg.loading.scratch import ScratchDirectory

    if kg_server is not None:
        with HttpGraphTools(kg_server, api_key=os.environ.get("KBQA_KG_SERVER_API_KEY")) as served:
            versions = {graph.name: graph.version for graph in served.graphs()}
            _require(graphs, list(versions))
            yield AskedGraphs(served, {graph.name: versions[graph.name] for graph in graphs})
        return
    with ExitStack() as opened:
        apart = opened.enter_context(ScratchDirectory()).path
        loaded = opened.enter_context(closing(GraphCatalog(home)))
        included = opened.enter_context(closing(GraphCatalog(apart)))
        _require_loaded(graphs, loaded)  # before the others are read, which takes time
        for graph in graphs:
            if graph.is_included:
                included.load(graph.name, graph.as_source(apart))
        stores = {graph.name: (included if graph.is_included else loaded).get(graph.name) for graph in graphs}
        versions = {name: store.version for name, store in stores.items()}
        yield AskedGraphs(local_tools(FixedGraphs(stores), home), versions)


def load_graphs(home: Path, dataset: str, seed: int) -> tuple[Graph, ...]:
    """Load the graphs that a data set includes into `home`, unless these versions are already loaded.

    Returns:
        All graphs of the data set, which are now in `home`.

    Raises:
        DatasetError: the data set does not exist, or its files are missing.
        GraphNotFoundError: the data set does not include a graph, and it is not loaded.
        GraphLoadError: a graph cannot be read.
    """
    from kbqa.datasets import load_dataset
    from kbqa.kg.catalog import GraphCatalog
    from kbqa.kg.loading.scratch import ScratchDirectory

    graphs = load_dataset(dataset, seed, data_directory(home)).graphs
    with closing(GraphCatalog(home)) as catalog, ScratchDirectory() as apart:
        _require_loaded(graphs, catalog)
        for graph in graphs:
            if graph.is_included:
                catalog.load(graph.name, graph.as_source(apart.path))
    return graphs


def _require_loaded(graphs: Sequence[Graph], catalog: GraphCatalog) -> None:
    """Raise `GraphNotFoundError` if a graph is neither included nor in the catalog."""
    _require([graph for graph in graphs if not graph.is_included], [info.name for info in catalog.list()])


def _require(graphs: Sequence[Graph], loaded: list[str]) -> None:
    for graph in graphs:
        if graph.name not in loaded:
            raise GraphNotFoundError(graph.name, loaded)
