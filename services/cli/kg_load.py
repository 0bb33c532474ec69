"""`kbqa kg load`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from kbqa.errors import ConfigurationError, GraphLoadError, KbqaError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.languages import DEFAULT_LANGUAGES
from kbqa.kg.loading.facts import Calendar, TimeUnit
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.loading.lines import Progress as OnProgress
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.kg.store import GraphStore
from services.cli.options import (
    DEFAULT_HOME,
    GivenNamespaces,
    Home,
    LabelLanguages,
    RecogniseNamespaces,
    namespace_options,
)

_SHOWN = 5  # types


def load(
    name: Annotated[str, typer.Argument(help="Name of the graph.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Facts: tab- or |-separated, RDF (N-Triples, N-Quads, Turtle, TriG, RDF/XML, JSON-LD), or "
            "RoG's JSON records, plain or gzipped. Several files, all separated or all RDF, make one graph. "
            "A directory stands for its RDF files.",
        ),
    ],
    graph_format: Annotated[
        GraphFormat | None,
        typer.Option("--format", help="File format (default: detected)."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="File of labels for entities and relations: id TAB label [TAB alias …]."),
    ] = None,
    entities: Annotated[
        Path | None,
        typer.Option(
            help="File that maps entity names to the ids used in the facts: name TAB id (entity2id.txt)."
        ),
    ] = None,
    relations: Annotated[
        Path | None, typer.Option(help="The same for relations: name TAB id (relation2id.txt).")
    ] = None,
    type_relations: Annotated[
        list[str] | None,
        typer.Option(
            "--type-relation",
            help="A further relation that states the type of an entity. Recognised without it: those of RDF, "
            "Freebase and Wikidata; in separated files, type, is a and instance of. Repeatable.",
        ),
    ] = None,
    language: LabelLanguages = None,
    namespace: GivenNamespaces = None,
    recognise_namespaces: RecogniseNamespaces = True,
    time_unit: Annotated[
        TimeUnit | None, typer.Option(help="Unit of the times of dated facts, if they are numbers.")
    ] = None,
    epoch: Annotated[
        str | None,
        typer.Option(help="Date of time 0. Its precision is that of all dates: 2014, 2014-01, 2014-01-01 …"),
    ] = None,
    underscores_as_blanks: Annotated[
        bool,
        typer.Option(
            "--underscores-as-blanks",
            help="Replace underscores by spaces in the names of a tab- or |-separated file (ICEWS, MultiTQ).",
        ),
    ] = False,
    skip_bad_lines: Annotated[
        bool,
        typer.Option("--skip-bad-lines", help="Skip lines that cannot be read instead of refusing the file."),
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write the number of each bad line and the reason to this file.")
    ] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Load files as a graph, replacing any graph of that name. Running services pick it up at once.

    Lines of dated facts end with a time, or with a start and an end.
    """
    source = GraphSource(
        files,
        graph_format,
        labels,
        entities,
        relations,
        tuple(type_relations or ()),
        _calendar(time_unit, epoch),
        underscores_as_blanks,
    )
    catalog = GraphCatalog(home)
    with ExitStack() as opened:
        opened.callback(catalog.close)
        try:
            written = opened.enter_context(report.open("w", encoding="utf-8")) if report else None
        except OSError as error:
            raise ConfigurationError(f"--report {report}: {error.strerror}") from error
        rejected = RejectedLines(skip=skip_bad_lines, report=written)
        try:
            with _progress_bar() as progress:
                graph = catalog.load(
                    name,
                    source,
                    naming=namespace_options(namespace, recognise_namespaces),
                    languages=tuple(language or DEFAULT_LANGUAGES),
                    rejected=rejected,
                    progress=progress,
                )
        except GraphLoadError as error:
            raise KbqaError("\n".join([str(error), *_others(rejected, report)])) from error
        recognised = list(_recognised_types(catalog.get(name)))
    if rejected.count:
        typer.echo("\n".join([*map(str, rejected.first[:1]), *_others(rejected, report)]), err=True)
    skipped = f", {rejected.count} lines skipped" if rejected.count else ""
    typer.echo(
        f"loaded {graph.name}: {graph.triples} triples, {graph.entities} entities, "
        f"version {graph.version}{skipped}"
    )
    for line in recognised:
        typer.echo(line)


def _recognised_types(store: GraphStore) -> Iterator[str]:
    """One line with the relations that state types in a delimited file, and the first types; or no line."""
    if isinstance(store, OxigraphStore) and store.of_names and store.type_relations:
        types = [item.label for item in store.types()]
        more = [f"and {len(types) - _SHOWN} more"] if len(types) > _SHOWN else []
        relations = " and ".join(f'"{relation}"' for relation in store.type_relations)
        yield f"types, by {relations}: {', '.join(types[:_SHOWN] + more)}"


def _calendar(unit: TimeUnit | None, epoch: str | None) -> Calendar | None:
    if (unit is None) != (epoch is None):
        raise ConfigurationError("--time-unit and --epoch must be given together")
    return None if unit is None or epoch is None else Calendar(unit, epoch)


def _others(rejected: RejectedLines, report: Path | None) -> Iterator[str]:
    """The next bad lines after the first, and where to find the rest."""
    if rejected.count < 2:
        return
    yield from map(str, rejected.first[1:])
    where = f"all are in {report}" if report else "--report FILE names every one"
    yield f"{rejected.count} bad lines; {where}, --skip-bad-lines loads the others"


@contextmanager
def _progress_bar() -> Iterator[OnProgress | None]:
    """Shows how much of each file has been read; shows nothing if standard error is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    tasks: dict[Path, TaskID] = {}
    with Progress(*columns, console=console, transient=True) as bar:

        def show(path: Path, done: int, size: int) -> None:
            if path not in tasks:
                tasks[path] = bar.add_task(path.name, total=size or None)
            bar.update(
                tasks[path], completed=done, description=f"{path.name}{' (indexing)' * (done == size)}"
            )

        yield show
