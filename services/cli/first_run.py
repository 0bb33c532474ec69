"""`kbqa runs begin`: the first run of an installation, started by whatever installs it."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from kbqa.datasets import load_dataset
from kbqa.errors import GraphError, RunError
from kbqa.kg.client import HttpGraphTools
from services.cli.api import Api, UnreachableError
from services.cli.options import (
    DEFAULT_RECIPE,
    DEFAULT_TRAINER,
    Limits,
    Overrides,
    RecipeName,
    Seed,
    TrainerUrl,
    data_directory,
    read_pairs,
)

_POLL_S = 2.0
_OVER = ("stopped", "failed", "done")
# Of which `policy` in a run's view may be a version, the furthest first.
_PHASES = ("rl", "cold_start", "base")


def begin(
    dataset: Annotated[str, typer.Option(help="Data set to train on: world, pathquestion-2h, …")] = "world",
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    seed: Seed = 1,
    limits: Limits = None,
    promote: Annotated[
        bool,
        typer.Option(
            "--promote",
            help="Stay until the run is over, and promote each version that is evaluated, unless it does "
            "worse than the one before.",
        ),
    ] = False,
    wait_s: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for the trainer and the graph.")
    ] = 3600.0,
    kg_server: Annotated[
        str, typer.Option("--kg-server", envvar="KBQA_KG_SERVER_URL", help="URL of the kg_server.")
    ] = "http://127.0.0.1:8001",
    trainer: TrainerUrl = DEFAULT_TRAINER,
) -> None:
    """Start a run unless the trainer already has one; waits until trainer and graph are ready.

    It is safe to repeat this command: an existing run is continued.
    """
    api = Api("trainer", trainer, "--trainer or KBQA_TRAINER_URL")
    deadline = time.monotonic() + wait_s
    runs = _get(api, "/v1/runs", deadline)["runs"]
    if runs:
        run = str(runs[0]["id"])
        typer.echo(f"run {run} already exists; its state is {runs[0]['state']}")
        if runs[0]["state"] in _OVER:
            return  # what answers now may be somebody's choice
    else:
        _wait_for_graph(kg_server, dataset, seed, deadline)
        order = {
            "recipe": recipe,
            "dataset": dataset,
            "overrides": read_pairs("--set", overrides),
            "limits": read_pairs("--limit", limits),
            "seed": seed,
        }
        run = str(api.post("/v1/runs", order)["id"])
        typer.echo(f"run {run}")
    if promote:
        _promote_what_is_better(api, run, wait_s)


def _get(api: Api, path: str, deadline: float) -> Any:
    """A page, as soon as the trainer answers."""
    while True:
        try:
            return api.get(path)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _wait_for_graph(url: str, dataset: str, seed: int, deadline: float) -> None:
    """Until kg_server has the graph of a data set.

    Raises:
        DatasetError: there is no such data set.
        GraphError: kg_server does not answer in time.
        RunError: it has no such graph in time.
    """
    name = load_dataset(dataset, seed, data_directory()).kg
    tools = HttpGraphTools(url, api_key=os.environ.get("KBQA_KG_SERVER_API_KEY"))
    try:
        while True:
            try:
                if any(graph.name == name for graph in tools.graphs()):
                    return
                if time.monotonic() > deadline:
                    raise RunError(
                        f"kg_server at {url} has no graph {name}: load it, then repeat this command"
                    )
            except GraphError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)
    finally:
        tools.close()


def _promote_what_is_better(api: Api, run: str, wait_s: float) -> None:
    """Until the run is over. What was promoted before this process began may be promoted once more."""
    known, best = None, float("-inf")
    while True:
        view = _get(api, f"/v1/runs/{run}", time.monotonic() + wait_s)
        if view["policy"] not in (None, known):
            known = view["policy"]
            f1 = next((view["f1"][phase] for phase in _PHASES if phase in view["f1"]), 0.0)
            if f1 >= best:
                best = f1
                version = api.post(f"/v1/runs/{run}/promote", {"version": known})["version"]
                typer.echo(f"promoted {version}, {view['split']} F1 {f1:.3f}")
            else:
                typer.echo(f"not promoted: {known}, {view['split']} F1 {f1:.3f}, below {best:.3f}")
        if view["state"] in _OVER:
            typer.echo(f"run {run} is {view['state']}")
            return
        time.sleep(_POLL_S)
