"""`kbqa kg update` and `kbqa kg compact`: graphs that change."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from kbqa.errors import ConfigurationError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.changes.batch import Batch, read_files
from kbqa.kg.changes.graph_changes import GraphChanges
from kbqa.kg.changes.updates import batch_of_update
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.store import GraphStore
from services.cli.options import DEFAULT_HOME, Home

_STANDARD_INPUT = Path("-")
_QUERY_S = 60.0


def update(
    graph: Annotated[str, typer.Argument(help="The graph.")],
    insert: Annotated[
        list[Path] | None,
        typer.Option("--insert", help="File of facts to insert; - is standard input. Repeatable."),
    ] = None,
    delete: Annotated[
        list[Path] | None,
        typer.Option("--delete", help="File of facts to delete; - is standard input. Repeatable."),
    ] = None,
    sparql: Annotated[
        Path | None,
        typer.Option(
            "--sparql",
            help="File with a SPARQL Update instead: INSERT DATA, DELETE DATA, DELETE WHERE, or DELETE and "
            "INSERT with WHERE; - is standard input.",
        ),
    ] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Insert and delete facts of a loaded graph, all of them or none. Running services see them at once.

    Files have any format that kbqa kg load reads, without times. A fact that is in both is inserted.
    """
    inserted, deleted = insert or [], delete or []
    if (sparql is None) is not bool(inserted or deleted):
        raise ConfigurationError("give --insert and --delete files, or a --sparql file")
    if [*inserted, *deleted, sparql].count(_STANDARD_INPUT) > 1:
        raise ConfigurationError("standard input (-) can be read once only")
    with _with_input([*inserted, *deleted, *([sparql] if sparql else [])]) as given:

        def read(shown: GraphStore, store: OxigraphStore) -> Batch:
            named = store.of_names
            if sparql is not None:
                try:
                    text = given[sparql].read_text()
                except (OSError, UnicodeDecodeError) as error:
                    raise ConfigurationError(f"--sparql {sparql}: {error}") from error
                return batch_of_update(text, shown, named=named, deadline_s=_QUERY_S)
            return Batch(
                *(
                    frozenset(read_files([given[p] for p in files], named=named))
                    for files in (inserted, deleted)
                )
            )

        with closing(GraphCatalog(home)) as catalog:
            changes = GraphChanges(catalog)
            made = changes.change(graph, read)
            if changes.should_be_compacted(graph):
                changes.compact(graph)
    typer.echo(
        f"{made.kg}: {made.inserted} inserted, {made.deleted} deleted, {made.ignored} ignored; "
        f"{made.triples} triples, version {made.version}"
    )
    if made.lost_relations:
        typer.echo(f"no fact has these relations any more: {', '.join(made.lost_relations)}", err=True)


def compact(
    graph: Annotated[str, typer.Argument(help="The graph.")],
    home: Home = DEFAULT_HOME,
) -> None:
    """Write a graph in full, with its changes, and then its views again.

    kg_server and kbqa kg update do so by themselves after many changes.
    """
    with closing(GraphCatalog(home)) as catalog:
        info = GraphChanges(catalog).compact(graph)
    typer.echo(f"{info.name}: {info.triples} triples, {info.entities} entities, version {info.version}")


@contextmanager
def _with_input(files: list[Path]) -> Iterator[dict[Path, Path]]:
    """The files by name; standard input is a temporary file, since formats are detected from its begin."""
    given = {path: path for path in files}
    with TemporaryDirectory() as directory:
        if _STANDARD_INPUT in given:
            copied = Path(directory, "standard input")  # the name that errors show
            copied.write_bytes(sys.stdin.buffer.read())
            given[_STANDARD_INPUT] = copied
        yield given
