"""`kbqa train --graph`: from a graph without questions to a policy that answers about it.

Every step leaves something behind by which the same command, given again, knows that it was done: the
questions, in a directory that is named after what they were made of, and the run, named after its order.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import typer
from pydantic import ValidationError

from kbqa.datasets import load_dataset
from kbqa.datasets.from_graph import split_made, write_splits
from kbqa.datasets.gold import gold_namer
from kbqa.errors import ConfigurationError, DatasetError, NoPolicyError, RunConflictError, RunNotFoundError
from kbqa.evaluation import Record
from kbqa.kg.catalog import GraphCatalog
from kbqa.planning.guard import fitted
from kbqa.policy_store import PolicyStore, PolicyVersion, open_store
from kbqa.policy_store.durable import new_directory
from kbqa.policy_store.shipped import shipped_reader
from kbqa.recipes import Recipe, load_recipe
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits, State, read_json
from kbqa.wire import RUN_PATTERN
from services.cli.api import Api, ApiError
from services.cli.chat_models import chat_model
from services.cli.graphs import local_tools
from services.cli.options import DEFAULT_TRAINER, data_directory
from services.cli.questions import make_and_show, open_paraphraser, print_leaks
from services.cli.training import follow_to_its_end, is_here, open_trainer, trainer_api, with_base_here

GRAPH_RECIPE = "reader-sft"

_ALL = "all"  # beside the levels of questions
_NOT_PROMOTED, _STOPPED = 1, 130
_NOT_FOUND = 404
_AGAIN = "repeat this command"


@dataclass(frozen=True, slots=True)
class GraphTraining:
    """What to train on a graph.

    Attributes:
        count: questions to make, at most.
        called: relation → noun for its heads.
        paraphrase_with: chat model that rewords the questions, as openai:MODEL; None leaves them as they are.
        overrides, limits: of the recipe, and of the questions of each split.
        name: of the run and of its policy; by default that of the graph and a digest of the order.
    """

    graph: str
    count: int
    called: Mapping[str, str]
    paraphrase_with: str | None
    recipe: str
    overrides: Mapping[str, Any]
    limits: Mapping[str, Any]
    seed: int
    name: str | None

    def order(self, dataset: str) -> dict[str, Any]:
        """The order of a run, whose phases validation questions judge; test questions decide later."""
        order = {
            "recipe": self.recipe,
            "dataset": dataset,
            "overrides": dict(self.overrides),
            "limits": {"test": 0, **self.limits},
            "seed": self.seed,
        }
        stem = re.sub(r"[^a-z0-9]+", "-", self.graph.lower()).strip("-")[:48]
        return {**order, "name": self.name or f"{stem}-{_digest(order)}"}


def train_on_graph(training: GraphTraining, trainer: str, home: Path, location: str | None) -> None:
    """Make questions, train on them, and promote the result if it answers held-out ones better.

    Args:
        trainer: URL; see `open_trainer`.
        location: of the policies, unless they are in `home`.

    Raises:
        GraphNotFoundError: the graph is not loaded.
        ConfigurationError: the options do not fit, or the trainer.
        RunConflictError: there is another run of that name.
        DatasetError: no questions can be made, or too few.
        typer.Exit: the run was stopped or has failed, or the result is not promoted.
    """

    def recipe() -> Recipe:
        return with_base_here(fitted(load_recipe(training.recipe, training.overrides)))

    chosen = recipe()
    _check(training, trainer, home)
    dataset = _questions(training, home)
    order = training.order(dataset)
    run = str(order["name"])
    found = _run(home, run)
    if found is not None:
        _check_same(found, order, chosen)
    if found is None or found.read().state is not State.DONE:
        with open_trainer(trainer, home, recipe, location) as (api, is_ours):
            _begin(api, order, is_known=found is not None, home=home)
            view = follow_to_its_end(api, run, is_ours, _AGAIN)
        if view["state"] != "done":
            raise typer.Exit(_STOPPED)
    _promote_if_better(training.graph, dataset, training.seed, run, home, open_store(home, location))


def _check(training: GraphTraining, trainer: str, home: Path) -> None:
    """Find out what would fail later, before questions are made, which takes time.

    Raises:
        ConfigurationError: the options are no order of a run, or the environment names no chat model.
        DatasetError: data sets cannot be written.
        UnreachableError: no trainer answers at a URL that is not the default.
    """
    if not is_here(trainer):
        raise ConfigurationError(
            f"--graph needs a trainer on this machine, and {trainer} is on another: leave --trainer out, or "
            "run this command there"
        )
    if training.paraphrase_with is not None:
        chat_model(training.paraphrase_with)
    if trainer != DEFAULT_TRAINER:
        trainer_api(trainer).get("/v1/runs")
    if training.name is not None and not re.fullmatch(RUN_PATTERN, training.name):
        raise ConfigurationError(
            f'--name "{training.name}": use up to 64 small letters, digits and "-", beginning with a letter '
            "or digit"
        )
    try:
        SplitLimits.model_validate(dict(training.limits))
    except ValidationError as error:
        raise ConfigurationError(
            f"--limit {error.errors()[0]['loc'][0]}: write train=N, validation=N or test=N, with a whole "
            "number"
        ) from None
    root = data_directory(home)
    try:
        with new_directory(root):
            pass
    except OSError as error:
        raise _unwritable(root, error) from error


def _questions(training: GraphTraining, home: Path) -> str:
    """The data set of questions about the graph as it is, which are made unless they were made before."""
    with closing(GraphCatalog(home)) as catalog:
        store = catalog.get(training.graph)
        made_of = [training.graph, store.version, training.count, training.seed]
        made_of += [sorted(training.called.items()), *filter(None, [training.paraphrase_with])]
        # The @ of a view would begin the design of a data set.
        stem = training.graph.replace("@", "-")
        name = f"{stem}-made-{_digest(made_of)}"
        directory = data_directory(home) / name
        if directory.exists():
            typer.echo(f"{directory}: the questions were made before")
            return name
        with open_paraphraser(training.paraphrase_with, training.seed) as paraphraser:
            made = make_and_show(
                store, training.graph, training.count, training.called, training.seed, home, paraphraser
            )
    splits = split_made(made.questions, training.seed)
    try:
        write_splits(splits, directory)
    except OSError as error:
        if not directory.exists():  # else the same command made them at the same time
            raise _unwritable(directory, error) from error
    parts = ", ".join(f"{len(getattr(splits, part))} {part}" for part in ("train", "validation", "test"))
    typer.echo(f"{directory}: {parts} questions")
    print_leaks(splits)
    return name


def _unwritable(directory: Path, error: OSError) -> DatasetError:
    return DatasetError(
        f"{directory} cannot be written ({error.strerror}): set KBQA_DATA to a directory that can"
    )


def _run(home: Path, run: str) -> RunDirectory | None:
    try:
        return Runs(home / "runs").get(run)
    except RunNotFoundError:
        return None


def _begin(api: Api, order: Mapping[str, Any], *, is_known: bool, home: Path) -> None:
    """Begin a run, or continue it if it was begun.

    Args:
        is_known: whether the run is in `home`.

    Raises:
        ConfigurationError: the trainer uses another directory than `home`.
    """
    run = str(order["name"])
    try:
        view = api.get(f"/v1/runs/{run}")
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        if not is_known:
            api.post("/v1/runs", order)
            if _run(home, run) is not None:
                return
            api.post(f"/v1/runs/{run}/stop")
    else:
        if is_known:
            if view["state"] in (State.STOPPED, State.FAILED):
                api.post(f"/v1/runs/{run}/resume")
            return
    raise ConfigurationError(
        f"the trainer at {api.url} does not use {home.absolute()}: give its directory with --home, or stop it"
    )


def _check_same(found: RunDirectory, order: Mapping[str, Any], recipe: Recipe) -> None:
    """Raises: RunConflictError: a run of that name has another order."""
    record = found.read()
    began_with = {
        "other questions": (record.dataset, order["dataset"]),
        "another recipe": (_taught(record.resolved_recipe()), _taught(recipe)),
        "other limits": (record.limits, SplitLimits.model_validate(order["limits"])),
        "another seed": (record.seed, order["seed"]),
    }
    for what, (before, wanted) in began_with.items():
        if before != wanted:
            raise RunConflictError(
                f"run {found.id} was begun with {what}: choose another --name, or leave it out"
            )


def _taught(recipe: Recipe) -> dict[str, Any]:
    """A recipe without the length of its rows, which depends on the machine and changes no result."""
    rows = {"token_budget"}
    return recipe.model_dump(exclude={"optimisation": rows, "cold_start": rows})


def _promote_if_better(graph: str, dataset: str, seed: int, run: str, home: Path, store: PolicyStore) -> None:
    """Compare what a run has trained with what answers about the graph until now, and promote what is better.

    Raises:
        typer.Exit: the new version is not promoted.
    """
    trained = Runs(home / "runs").get(run)
    after = store.get(run, read_json(trained.summary_path)["policy"])
    promoted = _promoted(store)
    if promoted == after:
        typer.echo(f"{_named(after)} answers already")
        return
    is_own = promoted is not None and graph in promoted.manifest.graphs
    before = promoted if promoted is not None and is_own else shipped_reader()
    questions = load_dataset(dataset, seed, data_directory(home)).splits.test
    with closing(GraphCatalog(home)) as graphs:
        tools = local_tools(graphs, home)
        asked = list(map(gold_namer(questions, tools, dataset), questions))
        from kbqa.serving.answering import answered  # it loads torch

        typer.echo(f"asking {_named(before)} and {_named(after)} {len(asked)} held-out questions")
        old, new = (_f1(answered(version, asked, tools)) for version in (before, after))
    for level, value in old.items():
        typer.echo(f"  {level}: F1 {value:.3f} → {new[level]:.3f}")
    reason = _objection(graph, run, promoted, old, new)
    if not reason and _promoted(store) != promoted:
        reason = f"another version was promoted meanwhile; to compare it, {_AGAIN}"
    if reason:
        typer.echo(f"not promoted: {reason}")
        raise typer.Exit(_NOT_PROMOTED)
    store.promote(after.run, after.id)
    typer.echo(f"promoted {_named(after)}; to ask it: kbqa up, and kbqa ask QUESTION --kg {graph}")


def _objection(
    graph: str, run: str, promoted: PolicyVersion | None, old: Mapping[str, float], new: Mapping[str, float]
) -> str:
    """Why a new version may not be promoted; "" if it may."""
    if new[_ALL] <= old[_ALL]:
        return "it does not answer better than what answers now; more steps or another seed may help"
    if promoted is not None and (others := set(promoted.manifest.graphs) - {graph}):
        named = ", ".join(sorted(others))
        return (
            f"{_named(promoted)}, which it would replace, answers about {named}; to replace it all the same: "
            f"kbqa promote {run}"
        )
    if promoted is not None and not promoted.manifest.graphs:
        return (
            f"{_named(promoted)}, which it would replace, answers about every graph; to replace it all the "
            f"same: kbqa promote {run}"
        )
    return ""


def _f1(records: Sequence[Record]) -> dict[str, float]:
    """Mean F1 of all questions, and of those of each level."""
    values = defaultdict[str, list[float]](list)
    for record in records:
        f1 = record.each[0]["f1"].value
        values[_ALL].append(f1)
        if level := record.question.level:
            values[level].append(f1)
    return {level: fmean(f1s) for level, f1s in values.items()}


def _promoted(store: PolicyStore) -> PolicyVersion | None:
    try:
        return store.promoted()
    except NoPolicyError:
        return None


def _named(version: PolicyVersion) -> str:
    return f"{version.run}/{version.id}"


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
