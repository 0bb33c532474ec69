"""`kbqa train`, `kbqa resume` and `kbqa runs`: training with a running trainer, or with a temporary one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from kbqa.datasets.from_graph.splitting import FEWEST
from kbqa.errors import ConfigurationError, GraphNotFoundError, RunError
from kbqa.planning.guard import fitted
from kbqa.recipes import Recipe, load_recipe
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
    Seed,
    StoreLocation,
    TrainerUrl,
    read_pairs,
)
from services.cli.questions import Heads, ParaphraseWith, called_heads
from services.cli.train_graph import GRAPH_RECIPE, GraphTraining, train_on_graph
from services.cli.training import (
    conclude,
    follow_to_its_end,
    is_here,
    open_trainer,
    tell_that_it_goes_on,
    trainer_api,
    with_base_here,
)

runs = typer.Typer(help="List, follow and stop training runs.", no_args_is_help=True)
runs.command()(begin)

Run = Annotated[str, typer.Argument(help="Training run.")]

_COUNT = 2_000  # questions about a graph that has none


def train(
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Data set to train on: world, pathquestion-2h, …; or a mixture: world+pathquestion-2h. "
            "Required except with --graph or --resume."
        ),
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            help="Name of a graph that has no questions. Make questions about it, train the reader on them, "
            "and promote the result if it answers better."
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            min=FEWEST,
            help=f"Number of questions to make about the graph that --graph names (default: {_COUNT}).",
        ),
    ] = None,
    heads: Heads = None,
    paraphrase_with: ParaphraseWith = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"Recipe name, see `kbqa recipe list` (default: {DEFAULT_RECIPE}; with --graph: "
            f"{GRAPH_RECIPE})."
        ),
    ] = None,
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
    location: StoreLocation = None,
) -> None:
    """Train a policy, and follow the run to its end.

    With `--graph`, the questions are made first (see `kbqa questions make`), and split by relations and by
    entities. Afterwards the result and what answers about the graph until then are asked the same held-out
    questions, and the result is promoted if it answers them better; exit code 1 if it does not. Repeat the
    command to continue where it was interrupted.

    If no trainer is running, the services that training needs are started for the duration of the run. If
    one is running, Ctrl-C stops following the run, not the run itself.
    """
    if [dataset, graph, resume].count(None) != 2:
        raise ConfigurationError(
            "give one of: a data set to train on (--dataset world), a graph without questions "
            "(--graph films), or a run to resume (--resume RUN)"
        )
    if graph is None:
        of_making = {"--heads": heads, "--count": count, "--paraphrase-with": paraphrase_with}
        _refuse(of_making, "makes questions: give it with --graph")
    if resume is not None:
        own = {"--recipe": recipe, "--set": overrides, "--limit": limits, "--name": name}
        _refuse(own, "is for a new run: a run is resumed with what it began with")
        _go_on(resume, trainer, home)
        return
    if graph is not None:
        wanted = GraphTraining(
            graph,
            count=count or _COUNT,
            called=called_heads(heads),
            paraphrase_with=paraphrase_with,
            recipe=recipe or GRAPH_RECIPE,
            overrides=read_pairs("--set", overrides),
            limits=read_pairs("--limit", limits),
            seed=seed,
            name=name,
        )
        train_on_graph(wanted, trainer, home, location)
        return
    assert dataset is not None
    order: dict[str, Any] = {
        "recipe": recipe or DEFAULT_RECIPE,
        "dataset": dataset,
        "overrides": read_pairs("--set", overrides),
        "limits": read_pairs("--limit", limits),
        "seed": seed,
    }
    if name is not None:
        order["name"] = name

    def check() -> Recipe:
        chosen = with_base_here(fitted(load_recipe(order["recipe"], order["overrides"])))
        load_graphs(home, dataset, seed)
        return chosen

    with open_trainer(trainer, home, check) as (api, is_ours):
        if not is_ours and is_here(api.url):
            with suppress(GraphNotFoundError):  # its kg_server may have what is not loaded here
                load_graphs(home, dataset, seed)
        _tell_how_to_promote(follow_to_its_end(api, str(api.post("/v1/runs", order)["id"]), is_ours))


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Raises: ConfigurationError: one of the options is given."""
    for option, value in given.items():
        if value:
            raise ConfigurationError(f"{option} {why}")


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
    for run in trainer_api(trainer).get("/v1/runs")["runs"]:
        typer.echo("  ".join([run["id"], run["state"], run["phase"], run["recipe"], run["dataset"]]))


@runs.command("follow")
def follow_run(run: Run, trainer: TrainerUrl = DEFAULT_TRAINER) -> None:
    """Follow a run to its end; Ctrl-C stops following, not the run."""
    try:
        _tell_how_to_promote(conclude(follow(trainer_api(trainer), run), f"kbqa resume {run}"))
    except KeyboardInterrupt:
        tell_that_it_goes_on(run)


@runs.command("stop")
def stop_run(run: Run, trainer: TrainerUrl = DEFAULT_TRAINER) -> None:
    """Stop a run after its current step and save a checkpoint."""
    trainer_api(trainer).post(f"/v1/runs/{run}/stop")
    typer.echo(f"stopped; to continue: kbqa resume {run}")


def _go_on(run: str | None, trainer: str, home: Path) -> None:
    """Resume a run (None: the newest stopped or failed one), and follow it to its end."""

    def check() -> Recipe:
        from kbqa.runs.directory import Runs

        runs_here = Runs(home / "runs")
        if run is not None:
            runs_here.get(run).require_unfinished()
        chosen = run or _newest_to_resume([directory.read().model_dump() for directory in runs_here.all()])
        return with_base_here(fitted(runs_here.get(chosen).read().resolved_recipe()))

    with open_trainer(trainer, home, check) as (api, is_ours):
        chosen = run or _newest_to_resume(api.get("/v1/runs")["runs"])
        if api.get(f"/v1/runs/{chosen}")["state"] != "running":
            api.post(f"/v1/runs/{chosen}/resume")
        _tell_how_to_promote(follow_to_its_end(api, chosen, is_ours))


def _newest_to_resume(records: Iterable[Mapping[str, Any]]) -> str:
    waiting = [str(run["id"]) for run in records if run["state"] in ("stopped", "failed")]
    if not waiting:
        raise RunError("there is no stopped or failed run; kbqa runs list shows all runs")
    return waiting[-1]


def _tell_how_to_promote(view: Mapping[str, Any]) -> None:
    if view["state"] == "done":
        typer.echo(f"to let it answer users: kbqa promote {view['id']}")
