"""`kbqa runs begin`: the first run of an installation, which the installer starts."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from kbqa.datasets import load_dataset
from kbqa.errors import GraphError, RunError
from kbqa.kg.client import HttpGraphTools
from services.cli.api import Api, UnreachableError
from services.cli.options import (
    DEFAULT_HOME,
    DEFAULT_RECIPE,
    DEFAULT_TRAINER,
    Home,
    Limits,
    Overrides,
    RecipeName,
    Seed,
    TrainerUrl,
    data_directory,
    read_pairs,
)
from services.cli.training import trainer_api

_POLL_S = 2.0
_OVER = ("stopped", "failed", "done")
# Phases whose version `policy` in a run's view may be, the last phase first.
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
        float,
        typer.Option(
            min=0, help="Maximum seconds to wait until the trainer is ready and the graphs are loaded."
        ),
    ] = 3600.0,
    kg_server: Annotated[
        str, typer.Option("--kg-server", envvar="KBQA_KG_SERVER_URL", help="URL of the kg_server.")
    ] = "http://127.0.0.1:8001",
    trainer: TrainerUrl = DEFAULT_TRAINER,
    home: Home = DEFAULT_HOME,
) -> None:
    """Start a run unless the trainer already has one; waits until trainer and graphs are ready.

    It is safe to repeat this command: an existing run is continued.
    """
    api = trainer_api(trainer)
    deadline = time.monotonic() + wait_s
    runs = _get(api, "/v1/runs", deadline)["runs"]
    if runs:
        run = str(runs[0]["id"])
        typer.echo(f"run {run} already exists; its state is {runs[0]['state']}")
        if runs[0]["state"] in _OVER:
            return  # do not promote: somebody may have chosen the policy that answers now
    else:
        _wait_for_graphs(kg_server, dataset, seed, data_directory(home), deadline)
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
    """The response of the trainer, as soon as it answers.

    Raises:
        UnreachableError: it does not answer by the deadline.
    """
    while True:
        try:
            return api.get(path)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _wait_for_graphs(url: str, dataset: str, seed: int, data: Path, deadline: float) -> None:
    """Wait until kg_server has the graphs of a data set.

    Raises:
        DatasetError: the data set does not exist.
        GraphError: kg_server does not answer in time.
        RunError: kg_server has not loaded a graph in time.
    """
    names = [graph.name for graph in load_dataset(dataset, seed, data).graphs]
    tools = HttpGraphTools(url, api_key=os.environ.get("KBQA_KG_SERVER_API_KEY"))
    try:
        while True:
            try:
                loaded = {graph.name for graph in tools.graphs()}
                missing = [name for name in names if name not in loaded]
                if not missing:
                    return
                if time.monotonic() > deadline:
                    raise RunError(
                        f"kg_server at {url} has no graph {missing[0]}: load it (kbqa kg load), "
                        "then repeat this command"
                    )
            except GraphError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)
    finally:
        tools.close()


def _promote_what_is_better(api: Api, run: str, wait_s: float) -> None:
    """Promote better versions until the run ends; a version that was promoted before is not promoted again,
    because somebody may have chosen another one since."""
    known = None
    while True:
        view = _get(api, f"/v1/runs/{run}", time.monotonic() + wait_s)
        if view["policy"] not in (None, known):
            known = view["policy"]
            f1, *earlier = [view["f1"][phase] for phase in _PHASES if phase in view["f1"]] or [0.0]
            best = max(earlier, default=f1)
            if known in _get(api, f"/v1/runs/{run}/promotions", time.monotonic() + wait_s)["versions"]:
                typer.echo(f"{known} was promoted before")
            elif f1 >= best:
                version = api.post(f"/v1/runs/{run}/promote", {"version": known})["version"]
                typer.echo(f"promoted {version}, {view['split']} F1 {f1:.3f}")
            else:
                typer.echo(f"not promoted: {known}, {view['split']} F1 {f1:.3f}, below {best:.3f}")
        if view["state"] in _OVER:
            typer.echo(f"run {run} is {view['state']}")
            return
        time.sleep(_POLL_S)
