"""`kbqa status` and `kbqa version`."""

from __future__ import annotations

import os

import typer

from kbqa import __version__
from kbqa.errors import NoPolicyError
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import PolicyStore
from services.cli.options import DEFAULT_HOME, Home
from services.cli.programs import USUAL_PORTS, unready

_NOT_READY = 1


def version() -> None:
    """Print the version."""
    typer.echo(f"kbqa {__version__}")


def status(home: Home = DEFAULT_HOME) -> None:
    """Tell which services are ready, which policy answers and which graphs are loaded.

    Services are looked for where KBQA_…_URL says, else on their usual ports.
    Exit code 0 when all are ready, 1 otherwise.
    """
    all_ready = True
    for service, port in USUAL_PORTS.items():
        url = os.environ.get(f"KBQA_{service.upper()}_URL", f"http://127.0.0.1:{port}").rstrip("/")
        reason = unready(url)
        all_ready &= reason is None
        typer.echo(f"{service:<15} {url:<24} {reason or 'ready'}")
    catalog = GraphCatalog(home)
    graphs = ", ".join(f"{graph.name} ({graph.triples} triples)" for graph in catalog.list())
    catalog.close()
    typer.echo(f"{'policy':<15} {_promoted(home)}")
    typer.echo(f"{'graphs':<15} {graphs or 'none: load one with kbqa kg load NAME FILE'}")
    if not all_ready:
        raise typer.Exit(_NOT_READY)


def _promoted(home: Home) -> str:
    try:
        policy = PolicyStore(home / "policies").promoted()
    except NoPolicyError as error:
        return str(error)
    return f"{policy.id} of run {policy.run}, recipe {policy.manifest.recipe}"
