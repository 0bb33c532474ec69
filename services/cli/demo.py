"""`kbqa demo`: the complete system on this machine, from a graph and questions to an answer.

Starts every service on free ports, loads a data set's graph, asks the reader about it, trains a policy
through the queues, promotes it, and asks it a question that it has not been trained on.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kbqa.answers import em_set
from kbqa.client.models import AnswerResponse
from kbqa.datasets import DATASETS, load_dataset
from kbqa.datasets.examples import write_examples
from kbqa.datasets.programs import chain_form
from kbqa.errors import DatasetError, RunError
from kbqa.recipes import load_recipe
from kbqa.trajectory import Question
from services.cli.api import Api, ApiError
from services.cli.ask import render
from services.cli.following import follow
from services.cli.graphs import load_graphs
from services.cli.options import DEFAULT_HOME, DEFAULT_RECIPE, Home, Overrides, data_directory, read_pairs
from services.cli.supervisor import Stack, training_workers
from services.cli.training import with_base_here

_START_S = 180.0
_SWITCH_S = 60.0  # time for the gateway to load a promoted policy
_INTERRUPTED = 130
_LONGEST_S = 900.0  # of training
_READ = 10  # questions that the reader is asked
_ASKED = 20  # maximum number of questions for the trained policy
_NO_POLICY = 503  # the gateway's status until it has a policy


def demo(
    home: Home = DEFAULT_HOME,
    dataset: Annotated[str, typer.Option(help=f"One of {', '.join(DATASETS)}.")] = "world",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    recipe: Annotated[str, typer.Option(help="A recipe that trains without a GPU.")] = DEFAULT_RECIPE,
    overrides: Overrides = None,
) -> None:
    """Train an agent on question-answer pairs, and ask it a question.

    On two cores, this takes about five minutes; on a busy machine, it can take three times as long. The
    policy stays in KBQA_HOME, and `kbqa up` serves it.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    values = _unhurried(recipe) | read_pairs("--set", overrides)
    chosen = with_base_here(load_recipe(recipe, values))
    questions = load_dataset(dataset, seed, data_directory(home)).splits.only(chosen.questions.suit)
    try:
        load_graphs(home, dataset, seed)
        typer.echo(f"loaded the graphs of {dataset}; starting the services")
        # The gateway runs only during the demo and only on this machine, so it needs no keys.
        manners = {"KBQA_TRAINER_AUTO_RESUME": "false", "KBQA_GATEWAY_REQUIRE_KEYS": "false"}
        with Stack(
            home,
            rollout_workers=training_workers(chosen),
            free_ports=True,
            environment=manners,
            on_event=typer.echo,
        ) as stack:
            stack.wait_ready(_START_S)
            for service, url in stack.urls.items():
                typer.echo(f"  {service:<15} {url}")
            gateway = Api("gateway", stack.urls["gateway"], "--gateway")
            hard = _hard(questions.test)
            _read(gateway, hard[:_READ])
            trainer = Api("trainer", stack.urls["trainer"], "--trainer")
            order = {"recipe": recipe, "dataset": dataset, "overrides": values, "seed": seed}
            run = str(trainer.post("/v1/runs", order)["id"])
            typer.echo(f"run {run}")
            view = follow(trainer, run)
            if view["state"] != "done":
                raise RunError(f"run {run} ended as {view['state']}: {view['error'] or 'no reason given'}")
            promoted = trainer.post(f"/v1/runs/{run}/promote")["version"]
            _ask(gateway, hard, promoted)
            _keep_examples(home, questions.test)
            _report(view, home, time.monotonic() - began)
    except KeyboardInterrupt:
        typer.echo("interrupted; all services have been stopped")
        raise typer.Exit(_INTERRUPTED) from None


def _unhurried(recipe: str) -> dict[str, float]:
    """Overrides that extend the recipe's time limit, so that a busy machine can finish all of its steps."""
    limit_s = load_recipe(recipe).schedule.max_run_seconds
    return {} if limit_s is None else {"schedule.max_run_seconds": max(limit_s, _LONGEST_S)}


def _hard(held_out: tuple[Question, ...]) -> Sequence[Question]:
    """The questions of two hops or more; all of them if there are none."""
    hard = [question for question in held_out if question.hops > 1] or held_out
    if not hard:
        raise DatasetError("the data set has no held-out question")
    return hard


def _read(gateway: Api, questions: Sequence[Question]) -> None:
    """Ask the policy that ships with kbqa, which has not been trained on this graph."""
    try:
        right = sum(is_right for _, is_right in (_answer(gateway, question) for question in questions))
    except ApiError as error:  # the training that follows does not need it
        typer.echo(f"the reader could not be asked: {error}")
        return
    typer.echo(
        f"before training: the reader, which ships with kbqa and has never seen this graph, answers "
        f"{right} of {len(questions)} held-out questions correctly"
    )


def _answer(gateway: Api, question: Question) -> tuple[dict[str, Any], bool]:
    """The gateway's response, and whether its answers are exactly the gold answers."""
    response = gateway.post("/v1/answer", {"question": question.text, "kg": question.kg})
    return response, em_set([answer["value"] for answer in response["answers"]], question.answers)


def _ask(gateway: Api, questions: Sequence[Question], version: str) -> None:
    """Ask held-out questions until one is answered correctly, and show this one."""
    _wait_for(gateway, questions[-1], version)  # not the first: its answer would then come from the cache
    missed = 0
    for question in questions[:_ASKED]:
        response, is_right = _answer(gateway, question)
        if is_right:
            break
        missed += 1
    typer.echo(f"\nPOST /v1/answer  {question.text}")
    Console(soft_wrap=True, highlight=False).print(render(AnswerResponse.model_validate(response)))
    typer.echo(f"gold answers: {', '.join(question.answers)}")
    if missed:
        typer.echo(f"({missed} held-out questions before this one were answered incorrectly)")
    typer.echo(f'to ask it again, start kbqa up, then run:  kbqa ask "{question.text}" --kg {question.kg}')


def _wait_for(gateway: Api, question: Question, version: str) -> None:
    """Wait until the gateway answers with the policy that was just promoted."""
    deadline = time.monotonic() + _SWITCH_S
    while True:
        try:
            response = gateway.post("/v1/answer", {"question": question.text, "kg": question.kg})
            if response["policy_version"] == version:
                return
        except ApiError as error:
            if error.status != _NO_POLICY:
                raise
        if time.monotonic() > deadline:
            raise RunError(f"the gateway has not loaded policy {version}: see its log")
        time.sleep(0.5)


def _keep_examples(home: Path, held_out: Sequence[Question]) -> None:
    """Keep some held-out questions for the gateway's page, which shows them until something is asked."""
    by_graph = defaultdict[str, list[Question]](list)
    for question in held_out:
        if question.path and len(question.topic_entities) == 1 and question.graph is None:
            form = chain_form(question.topic_entities[0], question.path)
            by_graph[question.kg].append(replace(question, form=form))
    for kg, questions in by_graph.items():
        write_examples(home, kg, questions)


def _report(view: dict[str, Any], home: Path, seconds: float) -> None:
    summary = view["summary"]
    typer.echo(f"\nF1 on {summary['questions']} held-out questions of {summary['dataset']}")
    for phase in summary["f1"]:
        hops = "  ".join(f"{h} hop {f1:.3f}" for h, f1 in sorted(summary["f1_by_hops"][phase].items()))
        typer.echo(f"  {phase:<12} {summary['f1'][phase]:.3f}   {hops}")
        for part, f1 in summary.get("f1_by_part", {}).get(phase, {}).items():
            typer.echo(f"  {'':<12} {f1:.3f}   {part}")
    typer.echo(f"\n{seconds:.0f} s in total; summary: {home / 'runs' / view['id'] / 'summary.json'}")
    typer.echo("to serve the policy: kbqa up; to ask it: kbqa ask QUESTION")
