"""`kbqa policy`: the versions in a policy store; `kbqa promote`: chooses the one that answers."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

from kbqa.errors import NoPolicyError, PolicyIntegrityError
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import PolicyStore, PolicyVersion, compare, open_store
from services.cli.api import Api, ApiError
from services.cli.options import (
    DEFAULT_HOME,
    DEFAULT_TRAINER,
    AsJson,
    Home,
    StoreLocation,
    TrainerUrl,
)

commands = typer.Typer(help="List, show, compare and check policy versions.", no_args_is_help=True)

_DAMAGED = 1
_SHOWN = 10  # relations that a notice names

Run = Annotated[str, typer.Argument(help="Training run.")]
Version = Annotated[str | None, typer.Argument(help="Version of the policy (default: the newest).")]


@commands.command("list")
def list_versions(
    run: Annotated[str | None, typer.Argument(help="Training run (default: all).")] = None,
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
    as_json: AsJson = False,
) -> None:
    """List the versions that have been published, oldest first."""
    store = open_store(home, location)
    promoted = _promoted(store)
    lost = lost_relations(home)
    versions = [version for name in ([run] if run else store.runs()) for version in store.versions(name)]
    if as_json:
        listed = [
            {
                **v.manifest.model_dump(mode="json", exclude={"files", "probe"}),
                "promoted": v == promoted,
                "lost_relations": {graph: lost[graph] for graph in v.manifest.graphs if graph in lost},
            }
            for v in versions
        ]
        typer.echo(json.dumps(listed))
        return
    if not versions:
        typer.echo("there is no policy version yet: train one with kbqa train")
        return
    table = Table("run", "version", "kind", "recipe", "step", "created", "", box=None)
    for v in versions:
        mark = "promoted" if v == promoted else ""
        m = v.manifest
        table.add_row(v.run, v.id, m.kind, m.recipe, str(m.step), m.created_at[:19], mark)
    Console().print(table)
    named = {graph for v in versions for graph in v.manifest.graphs if graph in lost}
    for graph in sorted(named):
        typer.echo(told_of_lost(graph, lost[graph]), err=True)


def lost_relations(home: Path) -> dict[str, list[str]]:
    """Graph → relations that changes took from it, for which policies may still ask."""
    with closing(GraphCatalog(home)) as catalog:
        return {graph.name: list(graph.lost_relations) for graph in catalog.list() if graph.lost_relations}


def told_of_lost(graph: str, relations: list[str]) -> str:
    """What a policy's user is told of relations that a graph has lost."""
    named = ", ".join(relations[:_SHOWN]) + (" …" if len(relations) > _SHOWN else "")
    return (
        f"no fact of {graph} has these relations any more, for which its policies may still ask: {named}; "
        "train again, or load the graph again if they are missed"
    )


@commands.command()
def show(
    run: Run, version: Version = None, home: Home = DEFAULT_HOME, location: StoreLocation = None
) -> None:
    """Print a version's manifest as JSON."""
    found = _find(open_store(home, location), run, version)
    typer.echo(found.manifest.model_dump_json(indent=1))


@commands.command()
def diff(
    run: Run,
    old: Annotated[str, typer.Argument(help="A version.")],
    new: Annotated[str, typer.Argument(help="Another version.")],
    other_run: Annotated[
        str | None, typer.Option("--run", help="Run of the other version, if it is a different one.")
    ] = None,
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two versions: manifest fields, and how far each tensor moved.

    Distances are Euclidean norms, absolute and relative to the norm of the old tensor.
    """
    store = open_store(home, location)
    versions = store.get(run, old), store.get(other_run or run, new)
    for version in versions:
        store.verify(version)
    changes = compare(*versions)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "fields": changes.fields,
                    "tensors": {t.name: {"norm": t.norm, "relative": t.relative} for t in changes.tensors},
                    "added": changes.added,
                    "removed": changes.removed,
                    "files": changes.files,
                }
            )
        )
        return
    for name, (before, after) in changes.fields.items():
        typer.echo(f"{name}: {before} → {after}")
    for verb, names in (("changed", changes.files), ("added", changes.added), ("removed", changes.removed)):
        for name in names:
            typer.echo(f"{verb}: {name}")
    table = Table("tensor", "shape", "norm of change", "relative", box=None)
    for t in sorted(changes.tensors, key=lambda t: -t.relative):
        if t.norm:
            table.add_row(t.name, "×".join(map(str, t.shape)), f"{t.norm:.4g}", f"{t.relative:.2%}")
    same = sum(not t.norm for t in changes.tensors)
    Console().print(table)
    typer.echo(f"{len(changes.tensors) - same} tensors have changed, {same} have not")


@commands.command()
def verify(
    run: Annotated[str | None, typer.Argument(help="Training run (default: all).")] = None,
    version: Annotated[str | None, typer.Argument(help="Version (default: all).")] = None,
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
) -> None:
    """Compare every file of versions with its checksum. Exit code 1 when one is damaged."""
    store = open_store(home, location)
    damaged = 0
    for name in [run] if run else store.runs():
        for identifier in [version] if version else sorted(store.ids(name)):
            try:
                store.verify(store.get(name, identifier))
                typer.echo(f"{name}/{identifier}: ok")
            except PolicyIntegrityError as error:
                damaged += 1
                typer.echo(f"{name}/{identifier}: {error}")
    if damaged:
        raise typer.Exit(_DAMAGED)


def promote(
    run: Run,
    version: Annotated[
        str | None,
        typer.Option(
            help="Version to promote (default: the newest that was evaluated; if no trainer is running, the "
            "newest)."
        ),
    ] = None,
    trainer: TrainerUrl = DEFAULT_TRAINER,
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
) -> None:
    """Make a run's policy the one that answers users. A running gateway switches to it on its own.

    If no trainer is running, the version is promoted in the policy store of KBQA_HOME.
    """
    try:
        api = Api("trainer", trainer, "--trainer or KBQA_TRAINER_URL")
        promoted = api.post(f"/v1/runs/{quote(run, safe='')}/promote", {"version": version})["version"]
    except ApiError as error:
        if error.status not in (0, 404):
            raise
        store = open_store(home, location)
        promoted = store.promote(run, _find(store, run, version).id).id
    typer.echo(f"promoted {promoted} of run {run}")


def _find(store: PolicyStore, run: str, version: str | None) -> PolicyVersion:
    found = store.newest(run) if version is None else store.get(run, version)
    if found is None:
        known = ", ".join(store.runs()) or "none yet"
        raise NoPolicyError(f'run "{run}" has not published a policy (runs with policies: {known})')
    return found


def _promoted(store: PolicyStore) -> PolicyVersion | None:
    try:
        return store.promoted()
    except (NoPolicyError, PolicyIntegrityError):
        return None
