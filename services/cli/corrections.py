"""`kbqa corrections`: teaches the promoted policy what users have corrected, or takes it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kbqa.corrections import (
    Correction,
    CorrectionRecord,
    Earlier,
    Examination,
    Lesson,
    corrections_of,
    examine,
)
from kbqa.datasets import load_dataset
from kbqa.datasets.records import read_questions
from kbqa.datasets.splits import Splits
from kbqa.errors import CorrectionsError, DatasetError, NoPolicyError, RunNotFoundError
from kbqa.feedback import feedback_files, feedback_path, read_feedback
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import PolicyStore, PolicyVersion, open_store
from kbqa.runs.directory import Runs
from kbqa.trajectory import Question
from services.access.keys import KeyFile
from services.cli.graphs import local_tools
from services.cli.options import (
    DEFAULT_HOME,
    AsJson,
    Home,
    Overrides,
    Seed,
    StoreLocation,
    data_directory,
    read_pairs,
)
from services.gateway.access.settings import keys_path

commands = typer.Typer(help="Teach the promoted policy what users have corrected.", no_args_is_help=True)

_NOT_PROMOTED = 1
_NOBODY = "-"  # stands for users without a key
_MUST_ANSWER = "must-answer.jsonl"

Kg = Annotated[str, typer.Option("--kg", help="Graph that the corrections are about.")]
EarlierName = Annotated[
    str | None,
    typer.Option(
        "--earlier",
        help="Data set of questions with right answers (default: that on which the promoted policy was "
        "trained).",
    ),
]


@commands.command("list")
def list_corrections(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List users' corrections. A correction is feedback that names the right answers."""
    said, record = _said(home), CorrectionRecord(home)
    valid = {one.id for one in record.valid(said)}
    if as_json:
        listed = [_described(one) | {"taken_back": one.id not in valid} for one in said]
        typer.echo(json.dumps(listed, ensure_ascii=False))
        return
    if not said:
        typer.echo("no feedback says which answers are right; users send it with POST /v1/feedback")
        return
    table = Table("time", "by", "graph", "question", "answers", "comment", "", box=None)
    for one in said:
        state = "" if one.id in valid else "taken back"
        time, answers = f"{one.time:%Y-%m-%d %H:%M}", ", ".join(one.answers)
        table.add_row(time, one.teacher or _NOBODY, one.kg, one.text, answers, one.comment or "", state)
    Console().print(table)


@commands.command()
def check(
    kg: Kg,
    earlier: EarlierName = None,
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
    as_json: AsJson = False,
) -> None:
    """Check which corrections can be taught. The others are set aside, each with the reason.

    The graph must lead from the question's entity to exactly the answers. Corrections must contradict
    neither each other nor questions of earlier training.
    """
    with closing(GraphCatalog(home)) as graphs:
        known = _Known.of(earlier, home, kg, lambda: open_store(home, location).promoted())
        found = examine(_valid(home, kg), known.questions.all, local_tools(graphs, home))
    if as_json:
        described = {
            "accepted": [_described(one) for one in found.accepted],
            "set_aside": [_described(out.correction) | {"reason": out.reason} for out in found.set_aside],
        }
        typer.echo(json.dumps(described, ensure_ascii=False))
        return
    _print(found)


@commands.command()
def learn(
    kg: Kg,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="KEY",
            help=f"Teach only corrections made with this key, and those that the policy was taught before "
            f'("{_NOBODY}": corrections made without a key). Repeatable.',
        ),
    ] = None,
    earlier: EarlierName = None,
    must_answer: Annotated[
        Path | None,
        typer.Option(
            "--must-answer",
            help="File of questions that must still be answered correctly for the result to be promoted "
            f"(default: HOME/corrections/{_MUST_ANSWER}, if it exists).",
        ),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            min=0.05, max=0.95, help="Share of corrections in training; the rest are earlier questions."
        ),
    ] = 0.3,
    again: Annotated[
        bool,
        typer.Option("--again", help="Train even if the policy was taught exactly these corrections before."),
    ] = False,
    overrides: Overrides = None,
    seed: Seed = 1,
    name: Annotated[str | None, typer.Option(help="Name of the run (default: lesson and time).")] = None,
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
) -> None:
    """Train the promoted policy on users' corrections, and promote the result if it passes three checks.

    On held-out earlier questions it loses at most 0.01 of F1. It still answers each must-answer question
    that was answered correctly. It answers at least half of each user's new corrections as that user
    said. Training takes place in this process. Exit code 1 if the result is not promoted.
    """
    store, record = open_store(home, location), CorrectionRecord(home)
    promoted = store.promoted()
    known = _Known.of(earlier, home, kg, lambda: promoted)
    must = _must_answer(must_answer, home)
    with closing(GraphCatalog(home)) as graphs:
        tools = local_tools(graphs, home)
        valid = _valid(home, kg)
        if by:
            teachers, taught = {_teacher(one) for one in by}, record.taught(promoted)
            valid = [one for one in valid if one.teacher in teachers or one.id in taught]
        found = examine(valid, known.questions.all, tools)
        _print(found)
        if found.accepted and not again and (last := record.lesson_of(promoted, found.accepted)):
            typer.echo(
                f"nothing is new since {last.run} ({_outcome(last)}); to teach it again: --again", err=True
            )
            return
        from kbqa.corrections.teaching import teach  # it loads torch

        lesson = teach(
            home,
            store,
            tools,
            found,
            earlier=known.questions,
            earlier_name=known.name,
            must_answer=must,
            share=share,
            overrides=read_pairs("--set", overrides),
            seed=seed,
            name=name,
        )
    for part, before in lesson.before.items():
        typer.echo(f"{part}: F1 {before:.3f} → {lesson.after[part]:.3f}")
    typer.echo(f"{lesson.name}: {_outcome(lesson)}")
    if not lesson.promoted:
        raise typer.Exit(_NOT_PROMOTED)


@commands.command()
def lessons(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List what policies were taught, by whom, and with which result."""
    record = CorrectionRecord(home)
    found = record.lessons()
    if as_json:
        described = [
            lesson.model_dump(mode="json") | {"taken_back": record.revoked(lesson)} for lesson in found
        ]
        typer.echo(json.dumps(described))
        return
    if not found:
        typer.echo("nothing was taught yet; kbqa corrections learn teaches what users have corrected")
    for lesson in found:
        by = ", ".join(sorted({one.by or _NOBODY for one in lesson.corrections}))
        taken = f"  taken back: {', '.join(record.revoked(lesson))}" if record.revoked(lesson) else ""
        told = f"{len(lesson.corrections)} corrections by {by}  {_outcome(lesson)}{taken}"
        typer.echo(f"{lesson.run}  {lesson.time:%Y-%m-%d %H:%M}  {told}")


@commands.command()
def revoke(
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="KEY",
            help=f'Take back the corrections made with this key ("{_NOBODY}": those made without a key).',
        ),
    ],
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
) -> None:
    """Take back everything that a key's owner has corrected until now.

    If the promoted policy has learned from it, the version before that lesson is promoted again.
    """
    record, store, teacher = CorrectionRecord(home), open_store(home, location), _teacher(by)
    theirs = [one for one in record.valid(_said(home)) if one.teacher == teacher]
    taught = any(one.by == teacher for lesson in record.lessons() for one in lesson.corrections)
    if not theirs and not taught:
        raise CorrectionsError(f'nobody named "{by}" has corrected anything: see kbqa corrections list')
    with record.exclusive():
        record.revoke(teacher)
        typer.echo(f"{len(theirs)} corrections by {by} are taken back")
        before = None if (promoted := _promoted(store)) is None else record.untaught(promoted, store)
        if before is not None:
            store.promote(before.run, before.id)
            typer.echo(
                f"promoted {before.run}/{before.id}, which did not learn from them; to teach it what is "
                "left: kbqa corrections learn"
            )


@dataclass(frozen=True, slots=True)
class _Known:
    """Questions of earlier training about a graph, and the data set that they are from."""

    questions: Splits
    name: Earlier

    @classmethod
    def of(cls, name: str | None, home: Path, kg: str, promoted: Callable[[], PolicyVersion]) -> _Known:
        if name is not None:
            found = Earlier(dataset=name, seed=1)
        elif lesson := CorrectionRecord(home).lesson_that_made(version := promoted()):
            found = lesson.earlier
        else:
            try:
                run = Runs(home / "runs").get(version.run).read()
            except RunNotFoundError as error:
                raise DatasetError(
                    f"run {version.run} of the promoted policy is not in {home}: name the data set that it "
                    "was trained on with --earlier"
                ) from error
            found = Earlier(dataset=run.dataset, seed=run.seed)
        every = load_dataset(found.dataset, found.seed, data_directory(home)).splits
        splits = every.only(lambda question: question.kg == kg)
        if not splits.train or not splits.test:
            raise DatasetError(
                f'{found.dataset} has no questions about "{kg}" to train on and to test with: name another '
                "data set with --earlier"
            )
        return cls(splits, found)


def _said(home: Path) -> list[Correction]:
    """What feedback says about right answers, oldest first."""
    names = {record.id: record.name for record in KeyFile(keys_path(home)).read()}
    feedback = read_feedback(*feedback_files(home), on_damaged=_tell_of_damage)
    return corrections_of(feedback, names)


def _tell_of_damage(path: Path, line: int) -> None:
    typer.echo(f"{path}, line {line}: this is no feedback; the line is left out", err=True)


def _valid(home: Path, kg: str) -> list[Correction]:
    """The corrections about a graph that were not taken back.

    Raises:
        CorrectionsError: there are none.
    """
    valid = [one for one in CorrectionRecord(home).valid(_said(home)) if one.kg == kg]
    if not valid:
        raise CorrectionsError(
            f'there is no correction about "{kg}" in {feedback_path(home).parent}: users send them with '
            "POST /v1/feedback"
        )
    return valid


def _must_answer(path: Path | None, home: Path) -> Sequence[Question]:
    usual = home / "corrections" / _MUST_ANSWER
    if path is None and not usual.exists():
        return ()
    return read_questions(path or usual)


def _promoted(store: PolicyStore) -> PolicyVersion | None:
    try:
        return store.promoted()
    except NoPolicyError:
        return None


def _teacher(name: str) -> str:
    return "" if name == _NOBODY else name


def _described(one: Correction) -> dict[str, object]:
    return {
        "id": one.id,
        "time": one.time.isoformat(),
        "by": one.teacher,
        "kg": one.kg,
        "question": one.text,
        "answers": list(one.answers),
        "comment": one.comment,
    }


def _print(found: Examination) -> None:
    typer.echo(f"{len(found.accepted)} corrections can be taught, {len(found.set_aside)} are set aside")
    for out in found.set_aside:
        one = out.correction
        typer.echo(f'  "{one.text}" → {", ".join(one.answers)} (by {one.teacher or _NOBODY}): {out.reason}')


def _outcome(lesson: Lesson) -> str:
    return "promoted" if lesson.promoted else f"not promoted: {lesson.reason}"
