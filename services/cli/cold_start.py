"""`kbqa cold-start`: writes a file of demonstrations for the cold start of a run."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbqa.curricula import Stratum, balanced, stratum
from kbqa.errors import ConfigurationError, DatasetError
from kbqa.kg.actions import GraphTools
from kbqa.policy_store.durable import write_file
from kbqa.recipes import Recipe, load_recipe
from kbqa.trajectory import Question
from services.cli.graphs import KgServerUrl, load_graphs, open_graphs
from services.cli.options import (
    DEFAULT_HOME,
    DEFAULT_RECIPE,
    AsJson,
    Home,
    Overrides,
    RecipeName,
    Seed,
    StoreLocation,
    VllmUrl,
    data_directory,
    read_pairs,
)

if TYPE_CHECKING:
    from kbqa.cold_start.collecting import Attempt, Setting, Teacher
    from kbqa.datasets import Splits


_CHAT_ROOM = {"max_tokens": 65_536, "max_turn_tokens": 2048}


class Method(StrEnum):
    """How demonstrations are created."""

    MINED = "mined"
    GOLD = "gold"
    OUTCOME = "outcome"
    SAMPLED = "sampled"
    REFERENCED = "referenced"
    NARRATED = "narrated"


_WITHOUT_TEACHER = (Method.MINED, Method.GOLD)


class Split(StrEnum):
    """The split whose questions are demonstrated."""

    COLD_START = "cold_start"
    TRAIN = "train"


class QuestionKind(StrEnum):
    """The property that groups questions into kinds: a `kbqa.curricula.Stratum`."""

    HOPS = "hops"
    STEPS = "steps"
    OPERATION = "operation"
    LEVEL = "level"
    TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class _Order:
    """Everything that determines the attempts; `digest` names the file in which they are stored."""

    dataset: str
    method: Method
    teacher: str
    recipe: Recipe
    candidates: int
    kind: Stratum
    seed: int

    def digest(self) -> str:
        values = (self.dataset, self.method, self.teacher, self.recipe.digest(), self.candidates, self.kind)
        return hashlib.sha256(json.dumps([*values, self.seed]).encode()).hexdigest()[:8]


def cold_start(
    dataset: Annotated[
        str, typer.Argument(help="Data set whose questions are demonstrated: world, metaqa-2hop, …")
    ],
    method: Annotated[
        Method,
        typer.Option(
            help="mined: play paths that lead to exactly the answers; gold: play gold programs; "
            "outcome: keep a teacher's correct episodes; sampled: keep those with an F1 above 0.9 and a "
            "valid format; referenced: the same, and show the teacher the next gold step in each turn; "
            "narrated: let it write the reasoning for gold steps."
        ),
    ] = Method.MINED,
    teacher: Annotated[
        str | None,
        typer.Option(help="Teacher: openai:MODEL, a policy as NAME[@VERSION], or a directory."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the file HOME/cold_start/NAME.jsonl (default: name of the recipe)."),
    ] = None,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    split: Annotated[
        Split,
        typer.Option(
            help="Split to take questions from; cold_start holds those set aside for this, or the training "
            "questions with a gold program."
        ),
    ] = (Split.COLD_START),
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Number of questions to try, balanced over kinds (default: all)."),
    ] = None,
    candidates: Annotated[
        int, typer.Option(min=1, help="Candidates that the teacher samples per question.")
    ] = 4,
    per_question: Annotated[
        int, typer.Option(min=1, help="Maximum number of demonstrations per question.")
    ] = 3,
    kind: Annotated[
        QuestionKind, typer.Option(help="Property by which questions are grouped into kinds.")
    ] = QuestionKind.OPERATION,
    balance: Annotated[
        bool, typer.Option("--balance", help="Keep the same number of demonstrations of every kind.")
    ] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of demonstrations (default: no limit).")
    ] = None,
    parallel: Annotated[
        int, typer.Option(min=1, help="Questions that the teacher works on in parallel.")
    ] = 4,
    seed: Seed = 1,
    vllm: VllmUrl = None,
    kg_server: KgServerUrl = None,
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
    as_json: AsJson = False,
) -> None:
    """Write a file of demonstrations for a cold start, and report how many candidates were accepted.

    Train on it with `--set cold_start.file=NAME.jsonl`. The teacher's attempts are kept beside the file, so
    an interrupted command continues when it is repeated. --teacher and --vllm are as in `kbqa eval`.
    """
    if method in _WITHOUT_TEACHER and teacher is not None:
        raise ConfigurationError(
            f"--teacher: {method} paths need no teacher; choose another --method to use one"
        )
    if method in _WITHOUT_TEACHER and vllm is not None:
        raise ConfigurationError(
            f"--vllm: {method} paths need no teacher, so nothing is computed; leave it out"
        )
    if method not in _WITHOUT_TEACHER and teacher is None:
        raise ConfigurationError(
            f"--method {method}: name a --teacher: openai:MODEL, NAME[@VERSION] of a policy, or a directory"
        )
    chosen = load_recipe(recipe, read_pairs("--set", overrides))
    order = _Order(dataset, method, teacher or "", chosen, candidates, kind.value, seed)
    from kbqa.datasets import Graph, load_dataset
    from kbqa.datasets.gold import gold_form_of, gold_namer

    form = gold_form_of(chosen.protocol.build())
    asked = load_dataset(dataset, seed, data_directory(home), answers=form)
    questions = _questions(order, asked.splits, split, limit)
    file = home / "cold_start" / f"{name or chosen.name}.jsonl"
    if kg_server is None:
        load_graphs(home, dataset, seed)
    loaded = [Graph(graph.name) for graph in asked.graphs]
    with ExitStack() as opened:
        graphs = opened.enter_context(open_graphs(loaded, home, kg_server=kg_server))
        questions = list(map(gold_namer(questions, graphs.tools, dataset), questions))
        tools = chosen.graph.terms().over(graphs.tools)
        teacher_of = partial(_teacher, order, home=home, location=location, vllm=vllm, opened=opened)
        tried = _tried(order, questions, file, parallel, tools, teacher_of)
    from kbqa.cold_start.collecting import acceptance, choose
    from kbqa.cold_start.files import DemonstrationEntry, write_entries

    rng = random.Random(f"cold-start/{seed}")
    kept = choose(tried, rng, per_question=per_question, balance=balance, count=count)
    report = {**acceptance(tried), "demonstrations": len(kept)}
    if kept:
        told = teacher or f"{method} path"
        write_entries(
            file, (DemonstrationEntry(one, chosen.protocol.name, method.value, told) for one in kept)
        )
        write_file(file.with_suffix(".acceptance.json"), json.dumps(report, indent=1).encode())
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print(report)
    if not kept:
        reasons = ", ".join(f"{number} {reason}" for reason, number in report["rejected"].items())
        raise DatasetError(f"no candidate was accepted ({reasons}), so {file} was not written")
    if not as_json:
        typer.echo(f"{len(kept)} demonstrations in {file}; train with --set cold_start.file={file.name}")


def _questions(order: _Order, splits: Splits, split: Split, limit: int | None) -> list[Question]:
    """The questions to try; with a limit, balanced over kinds.

    Raises:
        DatasetError: the split has no suitable questions.
    """
    from kbqa.cold_start.mining import blind

    drawn = splits.only(order.recipe.questions.suit).named(split.value)
    if not drawn:
        raise DatasetError(
            f"{order.dataset} has no questions in its split {split.value}: try --split {Split.TRAIN.value}"
        )
    if order.method is Method.MINED:
        drawn = tuple(map(blind, drawn))
    if limit is None:
        return list(drawn)
    rng = random.Random(f"cold-start/questions/{order.seed}")
    return balanced(drawn, lambda question: stratum(question, order.kind), limit, rng)


def _tried(
    order: _Order,
    questions: list[Question],
    file: Path,
    parallel: int,
    tools: GraphTools,
    teacher_of: Callable[[Setting], Teacher],
) -> list[Attempt]:
    """The attempt at every question; questions without a stored attempt are tried now."""
    from rich.console import Console
    from rich.progress import track

    from kbqa.cold_start.collecting import Setting, attempt, attempts
    from kbqa.cold_start.ledger import AttemptLedger
    from kbqa.cold_start.mining import bounds_for, mine

    ledger = AttemptLedger(file.with_name(f".{file.stem}-{order.digest()}.attempts.jsonl"))
    waiting = [question for question in questions if question.id not in ledger.done]
    if waiting:
        protocol, turns = order.recipe.protocol.build(), order.recipe.rollout.max_turns
        setting = Setting(protocol, tools, turns)
        if order.method is Method.MINED:
            waiting = mine(waiting, setting.tools, bounds_for(protocol, turns), order.seed)
        work = partial(attempt, teacher=teacher_of(setting), setting=setting, by=order.kind)
        made = attempts(waiting, work, parallel)
        console = Console(stderr=True)
        hidden = not sys.stderr.isatty()
        for one in track(made, "questions", len(waiting), console=console, disable=hidden):
            ledger.add(one)
    return [ledger.done[question.id] for question in questions]


def _teacher(
    order: _Order,
    setting: Setting,
    *,
    home: Path,
    location: str | None,
    vllm: str | None,
    opened: ExitStack,
) -> Teacher:
    """The teacher that the command names.

    Raises:
        NoPolicyError, PolicyIntegrityError, PolicyUnavailableError, ConfigurationError: see
            `services.cli.candidates`.
    """
    from kbqa.cold_start.collecting import GoldTeacher, NarratedTeacher, ReferencedTeacher, SamplingTeacher
    from kbqa.cold_start.filters import referenced
    from kbqa.rollouts import Agent, ChatAgent

    if order.method in _WITHOUT_TEACHER:
        return GoldTeacher(setting)  # for mined and gold paths
    from services.cli.candidates import open_candidate

    candidate = open_candidate(order.teacher, home, location, recipe=order.recipe, baseline=None, vllm=vllm)
    opened.callback(candidate.close)
    agent, temperature = candidate.play(setting.tools, 1)
    assert isinstance(agent, Agent | ChatAgent)
    budget = agent.budget
    if isinstance(agent, ChatAgent):
        # The recipe's budget is for a small policy; a chat model needs room for the explanation of the
        # dialect and for its thoughts.
        room = {name: max(getattr(budget, name), most) for name, most in _CHAT_ROOM.items()}
        budget = replace(budget, **room)
    agent = replace(agent, protocol=setting.protocol, budget=budget)
    if order.method is Method.NARRATED:
        if not isinstance(agent, ChatAgent):
            raise ConfigurationError("--method narrated: needs a chat model as teacher: openai:MODEL")
        return NarratedTeacher(setting, agent.policy, order.candidates, temperature, order.seed)
    sampling = SamplingTeacher(agent, order.candidates, temperature, order.seed)
    if order.method is Method.SAMPLED:
        return replace(sampling, accepts=referenced)
    return sampling if order.method is Method.OUTCOME else ReferencedTeacher(setting, sampling)


def _print(report: Mapping[str, Any]) -> None:
    """Print the acceptance table, one line for each kind of question."""
    from rich.console import Console
    from rich.table import Table

    table = Table("kind", "questions", "taught", "accepted", "of", "share", "F1", box=None)
    for kind, row in (*report["by_kind"].items(), ("all", report)):
        numbers = (row["questions"], row["taught"], row["accepted"], row["total"])
        table.add_row(kind, *map(str, numbers), f"{row['share']:.1%}", f"{row['f1']:.3f}")
    Console().print(table)
    for reason, number in report["rejected"].items():
        typer.echo(f"{number:>7} {reason.replace('_', ' ')}")
