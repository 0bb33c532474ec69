"""`kbqa train`, `kbqa resume` and `kbqa runs`: training with a running trainer, or with a temporary one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from kbqa.bases import find_base
from kbqa.errors import ConfigurationError, GraphNotFoundError, RunError
from kbqa.planning.guard import fitted
from kbqa.recipes import Recipe, load_recipe
from services.cli.api import Api, UnreachableError
from services.cli.first_run import begin
from services.cli.following import follow
from services.cli.graphs import load_graphs
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
    read_pairs,
)
from services.cli.supervisor import Stack, training_workers

runs = typer.Typer(help="List, follow and stop training runs.", no_args_is_help=True)
runs.command()(begin)

Run = Annotated[str, typer.Argument(help="Training run.")]

_FAILED, _INTERRUPTED = 2, 130
_START_S = 180.0


def train(
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Data set to train on: world, pathquestion-2h, …; or a mixture: world+pathquestion-2h. "
            "Required except with --resume."
        ),
    ] = None,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    seed: Seed = 1,
    limits: Limits = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the run and of its policy (default: data set and time).")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Resume a run that was stopped or has failed.")
    ] = None,
    trainer: TrainerUrl = DEFAULT_TRAINER,
    home: Home = DEFAULT_HOME,
) -> None:
    """Train a policy, and follow the run to its end.

    If no trainer is running, the services that training needs are started for the duration of the run. If
    one is running, Ctrl-C stops following the run, not the run itself.
    """
    if (dataset is None) == (resume is None):
        raise ConfigurationError(
            "give a data set to train on (--dataset world), or a run to resume (--resume RUN)"
        )
    if resume is not None:
        _go_on(resume, trainer, home)
        return
    assert dataset is not None
    order: dict[str, Any] = {
        "recipe": recipe,
        "dataset": dataset,
        "overrides": read_pairs("--set", overrides),
        "limits": read_pairs("--limit", limits),
        "seed": seed,
    }
    if name is not None:
        order["name"] = name

    def check() -> Recipe:
        chosen = with_base_here(fitted(load_recipe(recipe, order["overrides"])))
        load_graphs(home, dataset, seed)
        return chosen

    with _trainer(trainer, home, check) as (api, is_ours):
        if not is_ours and _is_here(api.url):
            with suppress(GraphNotFoundError):  # its kg_server may have what is not loaded here
                load_graphs(home, dataset, seed)
        _follow_to_its_end(api, str(api.post("/v1/runs", order)["id"]), is_ours)


def resume(
    run: Annotated[
        str | None,
        typer.Argument(help="Run to resume (default: the newest run that was stopped or failed)."),
    ] = None,
    trainer: TrainerUrl = DEFAULT_TRAINER,
    home: Home = DEFAULT_HOME,
) -> None:
    """Resume a run from its last checkpoint, and follow it to its end."""
    _go_on(run, trainer, home)


@runs.command("list")
def list_runs(trainer: TrainerUrl = DEFAULT_TRAINER) -> None:
    """List all runs, oldest first."""
    for run in _api(trainer).get("/v1/runs")["runs"]:
        typer.echo("  ".join([run["id"], run["state"], run["phase"], run["recipe"], run["dataset"]]))


@runs.command("follow")
def follow_run(run: Run, trainer: TrainerUrl = DEFAULT_TRAINER) -> None:
    """Follow a run to its end; Ctrl-C stops following, not the run."""
    try:
        _conclude(follow(_api(trainer), run))
    except KeyboardInterrupt:
        _tell_that_it_goes_on(run)


@runs.command("stop")
def stop_run(run: Run, trainer: TrainerUrl = DEFAULT_TRAINER) -> None:
    """Stop a run after its current step and save a checkpoint."""
    _api(trainer).post(f"/v1/runs/{run}/stop")
    typer.echo(f"stopped; to continue: kbqa resume {run}")


def _follow_to_its_end(api: Api, run: str, is_ours: bool) -> None:
    """Follow a run to its end. Ctrl-C stops the run if the trainer is ours, otherwise only the following."""
    typer.echo(f"run {run}")
    try:
        _conclude(follow(api, run))
    except KeyboardInterrupt:
        if is_ours:
            api.post(f"/v1/runs/{run}/stop")
            typer.echo(f"stopped; nothing is lost; to continue: kbqa resume {run}")
            raise typer.Exit(_INTERRUPTED) from None
        _tell_that_it_goes_on(run)


def with_base_here(recipe: Recipe) -> Recipe:
    """Check that the recipe's base model, and its reference, are on this machine; returns the recipe.

    Raises:
        BaseNotFoundError: one of them is not.
    """
    for name in (recipe.base_model, recipe.optimisation.reference):
        if name is not None:
            find_base(name)
    return recipe


def _api(url: str) -> Api:
    # Before it accepts a run, the trainer plans it.
    return Api("trainer", url, "--trainer or KBQA_TRAINER_URL", timeout_s=180.0)


@contextmanager
def _trainer(url: str, home: Path, check: Callable[[], Recipe]) -> Iterator[tuple[Api, bool]]:
    """The trainer at `url`, and whether it is ours.

    If `url` is the default and no trainer answers there, a stack with a trainer of our own is started.

    Args:
        check: returns the recipe to train; called before the stack is started, it raises the errors that
            the new trainer would report.
    """
    api = _api(url)
    try:
        api.get("/v1/runs")
    except UnreachableError:
        if url != DEFAULT_TRAINER:
            raise
    else:
        yield api, False
        return
    recipe = check()
    typer.echo("no trainer is running: starting one, with the services that it needs")
    services = ("kg_server", "rollout_worker", "trainer")
    # An unfinished run of an earlier stack must not resume by itself, because only one run can be active.
    manners = {"KBQA_TRAINER_AUTO_RESUME": "false"}
    with Stack(
        home,
        services=services,
        rollout_workers=training_workers(recipe),
        free_ports=True,
        environment=manners,
        on_event=typer.echo,
    ) as stack:
        stack.wait_ready(_START_S)
        yield _api(stack.urls["trainer"]), True


def _go_on(run: str | None, trainer: str, home: Path) -> None:
    """Resume a run (None: the newest stopped or failed one), and follow it to its end."""

    def check() -> Recipe:
        from kbqa.runs.directory import Runs

        runs_here = Runs(home / "runs")
        if run is not None:
            runs_here.get(run).require_unfinished()
        chosen = run or _newest_to_resume([directory.read().model_dump() for directory in runs_here.all()])
        return with_base_here(fitted(runs_here.get(chosen).read().resolved_recipe()))

    with _trainer(trainer, home, check) as (api, is_ours):
        chosen = run or _newest_to_resume(api.get("/v1/runs")["runs"])
        if api.get(f"/v1/runs/{chosen}")["state"] != "running":
            api.post(f"/v1/runs/{chosen}/resume")
        _follow_to_its_end(api, chosen, is_ours)


def _newest_to_resume(records: Iterable[Mapping[str, Any]]) -> str:
    waiting = [str(run["id"]) for run in records if run["state"] in ("stopped", "failed")]
    if not waiting:
        raise RunError("there is no stopped or failed run; kbqa runs list shows all runs")
    return waiting[-1]


def _is_here(url: str) -> bool:
    """Whether a service runs on this machine and therefore most likely uses our KBQA_HOME."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def _conclude(view: dict[str, Any]) -> None:
    """Print how a run ended.

    Raises:
        typer.Exit: the run failed.
    """
    if view["state"] == "failed":
        typer.echo(f"run {view['id']} failed: {view['error']}", err=True)
        raise typer.Exit(_FAILED)
    if view["state"] == "stopped":
        typer.echo(f"run {view['id']} was stopped; to continue: kbqa resume {view['id']}")
        return
    by_part = (view.get("summary") or {}).get("f1_by_part", {})
    typer.echo(
        f"run {view['id']} is done after {view['seconds']:.0f} s; {view['split']} F1: {_scores(view['f1'])}"
    )
    for part in sorted({part for f1 in by_part.values() for part in f1}):
        typer.echo(f"  {part}: {_scores({phase: f1[part] for phase, f1 in by_part.items()})}")
    if view.get("ended"):
        typer.echo(f"it ended early: {view['ended']}")
    typer.echo(f"to let it answer users: kbqa promote {view['id']}")


def _scores(f1: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {value:.3f}" for phase, value in f1.items())


def _tell_that_it_goes_on(run: str) -> None:
    typer.echo(f"the run continues; to follow it: kbqa runs follow {run}; to stop it: kbqa runs stop {run}")
