"""`kbqa kg subgraphs` and `kbqa kg check`: commands for a graph and a data set's questions."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kbqa.datasets.coverage import Coverage, coverage
from kbqa.datasets.gold_paths import GoldPaths, gold_paths
from kbqa.datasets.questions import load_questions
from kbqa.errors import DatasetError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.namespaced import ids_below
from kbqa.kg.store import GraphStore
from kbqa.kg.subgraphs import Seed, SubgraphSet, SubgraphWriter
from kbqa.trajectory import Question
from services.cli.options import DEFAULT_HOME, AsJson, Home, data_directory

_BELOW = 1  # exit code

Name = Annotated[str, typer.Argument(help="Name of the graph.")]
Questions = Annotated[
    str, typer.Argument(help="JSON lines with id, text, answers and topic_entities; or metaqa-2hop, …")
]
DataSeed = Annotated[int, typer.Option("--data-seed", help="Random seed of a data set given by name.")]


class SearchSeed(StrEnum):
    """The entities at which the search for a question's subgraph begins."""

    TOPICS = Seed.TOPICS.value
    TOPICS_AND_GOLD = Seed.TOPICS_AND_GOLD.value


def subgraphs(
    name: Name,
    questions: Questions,
    hops: Annotated[int, typer.Option(min=1, help="Maximum distance from the seeds, in hops.")] = 2,
    seed: Annotated[
        SearchSeed,
        typer.Option(
            help="Where a subgraph begins. topics+gold (KG-R1) leaks gold answers, and marks the graph."
        ),
    ] = SearchSeed.TOPICS,
    data_seed: DataSeed = 0,
    home: Home = DEFAULT_HOME,
) -> None:
    """Create a subgraph for each question; `graph: <question id>` in a request restricts look-ups to it.

    The graph gets a new version, which running services pick up.
    """
    asked = _load(questions, data_seed, home)
    whence = Seed(seed.value)
    without: list[str] = []

    def write(store: OxigraphStore, directory: Path) -> SubgraphSet:
        graph = catalog.get(name)
        with SubgraphWriter(store, directory, source=Path(questions).name, seed=whence, hops=hops) as writer:
            for question in asked:
                topics = _resolved(graph, question.topic_entities)
                if not topics:
                    without.append(question.id)
                    continue
                answers = tuple(answer for gold in question.golds for answer in gold)
                gold = _resolved(graph, answers) if whence is Seed.TOPICS_AND_GOLD else []
                writer.add_search(question.id, [*topics, *gold])
            return writer.finish()

    catalog = GraphCatalog(home)
    try:
        added = catalog.add_subgraphs(name, write)
        version = catalog.get(name).version
    finally:
        catalog.close()
    leaking = ", leaking: gold answers are always inside" if added.leaking else ""
    typer.echo(f"{name}: {added.questions} subgraphs of {hops} hops, version {version}{leaking}")
    if without:
        typer.echo(
            f"{len(without)} questions have no subgraph, because their topic entities are not in the graph: "
            f"{', '.join(without[:5])}{' …' if len(without) > 5 else ''}",
            err=True,
        )


def check(
    name: Name,
    questions: Questions,
    threshold: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Minimum share of questions whose names are all in the graph."),
    ] = 1.0,
    split: Annotated[
        str | None, typer.Option(help="Check this split of the data set only (default: all splits).")
    ] = None,
    paths: Annotated[
        bool,
        typer.Option(
            "--paths",
            help="Also follow the gold paths, and report how often they lead to the gold answers. At an "
            "endpoint, this takes two queries for each question.",
        ),
    ] = False,
    data_seed: DataSeed = 0,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Report whether a graph contains the topic entities, gold answers and relations of a data set.

    With --paths, it also reports RHits@1: the average share of gold answers among the nodes at the end of a
    gold path.

    Exit code 1 if the share of questions whose names are all present is below the threshold.
    """
    asked = _load(questions, data_seed, home, split)
    catalog = GraphCatalog(home)
    try:
        store = catalog.get(name)
        found = coverage(store, asked)
        followed = gold_paths(store, asked) if paths else None
        version = store.version
        del store
    finally:
        catalog.close()
    if as_json:
        document = {"kg": name, "version": version, "share": found.share, **asdict(found)}
        if followed is not None:
            document["paths"] = asdict(followed) | {"rhits@1": followed.rhits1}
        typer.echo(json.dumps(document))
    else:
        _print(name, found)
        if followed is not None:
            _print_paths(followed)
    if found.share < threshold:
        raise typer.Exit(_BELOW)


def _print(name: str, found: Coverage) -> None:
    typer.echo(
        f"{name} contains all names of {found.resolved} of {found.questions} questions ({found.share:.2%})"
    )
    for kind in ("topics", "answers", "relations"):
        names = getattr(found, kind)
        known = names.names - names.missing - names.computed
        computed = f"; {names.computed} that a query may compute" if names.computed else ""
        typer.echo(f"  {kind}: {known} of {names.names} known{computed}")
        for name, why in names.examples:
            typer.echo(f"    {name}: {why}")
        if names.missing > len(names.examples):
            typer.echo(f"    … and {names.missing - len(names.examples)} more")


def _print_paths(followed: GoldPaths) -> None:
    if not followed.questions:
        typer.echo("  gold paths: no question has one")
        return
    typer.echo(
        f"  gold paths: {followed.exact} of {followed.questions} lead to exactly the gold answers; "
        f"RHits@1 of their ends is {followed.rhits1:.3f}"
    )


def _load(questions: str, seed: int, home: Path, split: str | None = None) -> list[Question]:
    found = load_questions(questions, seed=seed, split=split, data_directory=data_directory(home))
    ids = [question.id for question in found]
    if len(set(ids)) < len(ids):
        raise DatasetError(f"{questions}: two questions have the same id")
    return found


def _resolved(store: GraphStore, names: tuple[str, ...]) -> list[str]:
    """Ids of the graph as it is stored."""
    return [id_ for name in names for id_ in ids_below(store, name)]
