"""A trainer, running or temporary, and its runs as commands show them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from kbqa.bases import find_base
from kbqa.recipes import Recipe
from services.cli.api import Api, UnreachableError
from services.cli.following import follow
from services.cli.options import DEFAULT_TRAINER
from services.cli.supervisor import Stack, training_workers

_FAILED, _INTERRUPTED = 2, 130
_START_S = 180.0
_PLANNED_S = 600.0  # The trainer plans a run before it accepts it. On a busy machine, this takes minutes.


@contextmanager
def open_trainer(
    url: str, home: Path, check: Callable[[], Recipe], store: str | None = None
) -> Iterator[tuple[Api, bool]]:
    """The trainer at `url`, and whether it is ours.

    If `url` is the default and no trainer answers there, a stack with a trainer of our own is started.

    Args:
        check: returns the recipe to train; called before the stack is started, it raises the errors that
            the new trainer would report.
        store: where a trainer of our own publishes policies, unless in `home`.
    """
    api = trainer_api(url)
    try:
        api.get("/v1/runs")
    except UnreachableError:
        if url != DEFAULT_TRAINER:
            raise
    else:
        typer.echo(
            f"a trainer is already running at {url}: this command uses it, with its settings and data sets"
        )
        yield api, False
        return
    recipe = check()
    typer.echo("no trainer is running: starting one, with the services that it needs")
    services = ("kg_server", "rollout_worker", "trainer")
    # An unfinished run of an earlier stack must not resume by itself, because only one run can be active.
    manners = {"KBQA_TRAINER_AUTO_RESUME": "false"} | ({"KBQA_POLICY_STORE": store} if store else {})
    with Stack(
        home,
        services=services,
        rollout_workers=training_workers(recipe),
        free_ports=True,
        environment=manners,
        on_event=typer.echo,
    ) as stack:
        stack.wait_ready(_START_S)
        yield trainer_api(stack.urls["trainer"]), True


def trainer_api(url: str) -> Api:
    """A client of the trainer at a URL."""
    return Api("trainer", url, "--trainer or KBQA_TRAINER_URL", timeout_s=_PLANNED_S)


def follow_to_its_end(api: Api, run: str, is_ours: bool, again: str | None = None) -> dict[str, Any]:
    """Follow a run to its end, and print how it ended; returns its final view.

    Ctrl-C stops the run if the trainer is ours, otherwise only the following.

    Args:
        again: what continues a run that was stopped (default: `kbqa resume`).

    Raises:
        typer.Exit: the run has failed, or was interrupted.
    """
    typer.echo(f"run {run}")
    again = again or f"kbqa resume {run}"
    try:
        return conclude(follow(api, run), again)
    except KeyboardInterrupt:
        if is_ours:
            api.post(f"/v1/runs/{run}/stop")
            typer.echo(f"stopped; nothing is lost; to continue: {again}")
            raise typer.Exit(_INTERRUPTED) from None
        tell_that_it_goes_on(run)
        raise typer.Exit from None


def conclude(view: dict[str, Any], again: str) -> dict[str, Any]:
    """Print how a run ended; returns its final view.

    Raises:
        typer.Exit: the run failed.
    """
    if view["state"] == "failed":
        typer.echo(f"run {view['id']} failed: {view['error']}", err=True)
        raise typer.Exit(_FAILED)
    if view["state"] == "stopped":
        typer.echo(f"run {view['id']} was stopped; to continue: {again}")
        return view
    by_part = (view.get("summary") or {}).get("f1_by_part", {})
    typer.echo(
        f"run {view['id']} is done after {view['seconds']:.0f} s; {view['split']} F1: {_scores(view['f1'])}"
    )
    for part in sorted({part for f1 in by_part.values() for part in f1}):
        typer.echo(f"  {part}: {_scores({phase: f1[part] for phase, f1 in by_part.items()})}")
    if view.get("ended"):
        typer.echo(f"it ended early: {view['ended']}")
    return view


def tell_that_it_goes_on(run: str) -> None:
    """Print how a run that continues can be followed and stopped."""
    typer.echo(f"the run continues; to follow it: kbqa runs follow {run}; to stop it: kbqa runs stop {run}")


def with_base_here(recipe: Recipe) -> Recipe:
    """Check that a recipe's base model and reference model are on this machine; return the recipe.

    Raises:
        BaseNotFoundError: one of them is not.
    """
    for name in (recipe.base_model, recipe.optimisation.reference):
        if name is not None:
            find_base(name)
    return recipe


def is_here(url: str) -> bool:
    """Whether a service runs on this machine and therefore most likely uses our KBQA_HOME."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def _scores(f1: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {value:.3f}" for phase, value in f1.items())
