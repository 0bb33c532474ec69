"""`kbqa status` and `kbqa version`."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any
from urllib.parse import quote

import typer

from kbqa import __version__
from kbqa.errors import NoPolicyError
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import open_store
from services.cli.api import Api, ApiError
from services.cli.following import describe
from services.cli.options import DEFAULT_HOME, DEFAULT_TRAINER, AsJson, Home, TrainerUrl
from services.cli.policies import lost_relations, told_of_lost
from services.cli.programs import USUAL_PORTS, unready

_NOT_READY = 1


def version() -> None:
    """Print the version."""
    typer.echo(f"kbqa {__version__}")


def status(
    run: Annotated[str | None, typer.Argument(help="Show this training run instead.")] = None,
    trainer: TrainerUrl = DEFAULT_TRAINER,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Show which services are ready, what is being trained, which policy answers and which graphs are
    loaded.

    Services are expected at KBQA_…_URL, or else on their default ports.
    Exit code 0 when all are ready, 1 otherwise. With RUN, show that training run instead (--json: all of
    it).
    """
    api = Api("trainer", trainer, "--trainer or KBQA_TRAINER_URL")
    if run is not None:
        view = api.get(f"/v1/runs/{quote(run, safe='')}")
        typer.echo(json.dumps(view, indent=1) if as_json else "\n".join(_lines(view)))
        return
    all_ready = True
    for service, port in USUAL_PORTS.items():
        url = os.environ.get(f"KBQA_{service.upper()}_URL", f"http://127.0.0.1:{port}").rstrip("/")
        reason = unready(url)
        all_ready &= reason is None
        typer.echo(f"{service:<15} {url:<24} {reason or 'ready'}")
    catalog = GraphCatalog(home)
    graphs = ", ".join(f"{graph.name} ({graph.triples} triples)" for graph in catalog.list())
    catalog.close()
    typer.echo(f"{'training':<15} {_training(api)}")
    typer.echo(f"{'policy':<15} {_promoted(home)}")
    typer.echo(f"{'graphs':<15} {graphs or 'none: load one with kbqa kg load NAME FILE'}")
    for graph, relations in lost_relations(home).items():
        typer.echo(f"{'notice':<15} {told_of_lost(graph, relations)}")
    if not all_ready:
        raise typer.Exit(_NOT_READY)


def _training(api: Api) -> str:
    """The state of the newest run, as one line."""
    try:
        runs = api.get("/v1/runs")["runs"]
    except ApiError:
        return "unknown: no trainer answers"
    if not runs:
        return "no run yet: begin one with kbqa train"
    view = api.get(f"/v1/runs/{runs[-1]['id']}")
    alarms = "".join(f", alarm: {alarm}" for alarm in view["alarms"])
    return f"run {view['id']} {view['state']}, {view['phase']} {view['step']}/{view['of']}{alarms}"


def _lines(view: dict[str, Any]) -> list[str]:
    """The state of a run, as lines of text."""
    where = f"{view['phase']} {view['step']}/{view['of']} after {view['seconds']:.0f} s"
    facts = {
        "run": f"{view['id']}: {view['recipe']} on {view['dataset']}, seed {view['seed']}",
        "state": f"{view['state']}, {where}",
        "restarts": view["restarts"] or "",
        f"{view['split']} F1": ", ".join(f"{phase} {f1:.3f}" for phase, f1 in view["f1"].items()),
        "groups": ", ".join(f"{count} {outcome}" for outcome, count in view["groups"].items()),
        "newest record": describe(view["history"][-1]) if view["history"] else "",
        "best": "step {step}: {version}, {value:.4g}".format(**view["best"]) if view["best"] else "",
        "ended early": view["ended"] or "",
        "error": view["error"] or "",
    }
    alarms = [
        "alarm           {name} {value:.4g}, bound {bound:.4g}, since step {since}".format(**alarm)
        for alarm in view["alarms"].values()
    ]
    return [f"{name:<15} {fact}" for name, fact in facts.items() if fact != ""] + alarms


def _promoted(home: Home) -> str:
    try:
        policy = open_store(home, os.environ.get("KBQA_POLICY_STORE")).promoted()
    except NoPolicyError as error:
        return str(error)
    return f"{policy.id} of run {policy.run}, recipe {policy.manifest.recipe}"
