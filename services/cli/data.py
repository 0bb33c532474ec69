"""`kbqa data`: inspects, converts and splits data sets in their own formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kbqa.datasets import rog
from kbqa.datasets.catalog import DATASETS, load_dataset, open_published
from kbqa.datasets.curation import Curation, curate
from kbqa.datasets.formats import Answers, Malformed, OnError
from kbqa.datasets.generalisation import split_by_level
from kbqa.datasets.inspection import Inspection, inspect
from kbqa.datasets.mixtures import is_mixture
from kbqa.datasets.published import FAMILIES, Part
from kbqa.datasets.records import write_questions
from kbqa.datasets.splits import Splits, split_at_random, split_by_path
from kbqa.errors import DatasetError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.files import GraphFormat
from kbqa.kg.loading.scratch import ScratchDirectory
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import Question
from services.cli.options import DEFAULT_HOME, AsJson, Home, data_directory

commands = typer.Typer(help="Look at data sets, convert and split them.", no_args_is_help=True)

_OWN = "jsonl"
_LISTED = 20
_QUERY_S = 60.0

Dataset = Annotated[
    str,
    typer.Argument(help="Data set by name, such as webqsp or metaqa-2hop@whole; or a file or directory."),
]
DataPath = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Directory of the data set, or a file in its format (default: under KBQA_DATA)."
    ),
]
FormatName = Annotated[
    str,
    typer.Option("--format", help=f"Format of a file or directory: {_OWN}, or the data set that has it."),
]
Malformation = Annotated[
    OnError, typer.Option("--on-error", help="Whether a malformed record is refused or skipped.")
]
AnswerNames = Annotated[
    Answers, typer.Option("--answers", help="Use labels or ids as gold answers where the data set has both.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]


class By(StrEnum):
    """How `kbqa data split` splits a data set."""

    LEVEL = "level"
    PATH = "path"
    RANDOM = "random"


@commands.command("inspect")
def inspect_dataset(
    dataset: Dataset,
    data: DataPath = None,
    form: FormatName = _OWN,
    on_error: Malformation = OnError.SKIP,
    seed: Seed = 0,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Count a data set's questions, hops, operations and levels; report malformed records and leaks."""
    name, place = _source(dataset, data, form)
    parts, malformed = _splits(name, place, seed, on_error, data_directory(home))
    found = inspect(parts)
    if as_json:
        listed = [asdict(record) | {"file": str(record.file)} for record in malformed]
        typer.echo(json.dumps({"dataset": dataset, **asdict(found), "malformed": listed}, ensure_ascii=False))
        return
    _print(found)
    _list(malformed, "malformed")


@commands.command()
def convert(
    dataset: Dataset,
    output: Annotated[Path, typer.Argument(help="Output file, one JSON record per line.")],
    data: DataPath = None,
    form: FormatName = _OWN,
    part: Annotated[
        Part | None, typer.Option("--part", help="Part of a data set in several files (default: all).")
    ] = None,
    answers: AnswerNames = Answers.LABELS,
    on_error: Malformation = OnError.REFUSE,
    kg: Annotated[str, typer.Option("--kg", help="Name of the graph (default: the data set's own).")] = "",
    graph: Annotated[
        str,
        typer.Option(
            "--curate",
            help="Keep the questions whose gold query returns exactly one row from this loaded graph.",
        ),
    ] = "",
    seed: Seed = 0,
    home: Home = DEFAULT_HOME,
    force: Force = False,
) -> None:
    """Convert a data set to JSON lines that every kbqa command reads.

    With `--curate`, the command runs each gold query again. It keeps a question if the query returns
    exactly one row with a valid RDF term. This term becomes the answer. Learning-to-Refine curates
    LC-QuAD 2.0 in this way.
    """
    name, place = _source(dataset, data, form)
    _is_free(output, force)
    questions, malformed = _questions(name, place, part, seed, answers, on_error, data_directory(home))
    if kg:
        questions = [replace(question, kg=kg) for question in questions]
    if graph:
        curation = _curated(questions, graph, home)
        questions = curation.kept
        for reason, count in curation.excluded.most_common():
            typer.echo(f"left out, {reason}: {count}")
    if not questions:
        raise DatasetError(f"{dataset}: there are no questions to write")
    _write(output, questions)
    typer.echo(f"{output}: {len(questions)} questions")
    _list(malformed, "skipped")


@commands.command("load-rog")
def load_rog(
    name: Annotated[str, typer.Argument(help="Name of the data set and of its graph, such as rog-webqsp.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Released files, JSON lines or parquet, or a directory of them; their names begin with "
            "train, validation or test."
        ),
    ],
    home: Home = DEFAULT_HOME,
    force: Force = False,
) -> None:
    """Make a graph and a data set from RoG's files (RoG-WebQSP, RoG-CWQ). Each question has a subgraph.

    The data set is written to KBQA_DATA (default: HOME/data). Next: `kbqa train --dataset NAME`.
    """
    directory = data_directory(home) / name
    for part in ("train", "validation", "test"):
        _is_free(directory / f"{part}.jsonl", force)
    home.mkdir(parents=True, exist_ok=True)
    catalog = GraphCatalog(home)
    # In HOME, because the subgraphs of a data set are several gigabytes.
    with ScratchDirectory(home) as apart, closing(catalog):
        records = apart.path / f"{name}.jsonl"
        written = rog.convert(files, name, directory, records)
        graph = catalog.load(name, records, format=GraphFormat.ROG)
    counts = ", ".join(f"{part} {count}" for part, count in written.questions.items())
    typer.echo(f"{directory}: {counts} questions")
    typer.echo(
        f"loaded {graph.name}: {graph.triples} triples, {graph.entities} entities, version {graph.version}"
    )
    if written.nameless:
        typer.echo(f"{written.nameless} triples were left out because a name in them is empty", err=True)


@commands.command()
def split(
    dataset: Dataset,
    directory: Annotated[
        Path, typer.Argument(help="Directory for train.jsonl, validation.jsonl and test.jsonl.")
    ],
    by: Annotated[By, typer.Option("--by", help="How to split: by level, by path, or at random.")] = By.PATH,
    validation: Annotated[float, typer.Option(min=0.0, max=0.9, help="Share of validation questions.")] = 0.1,
    test: Annotated[float, typer.Option(min=0.0, max=0.9, help="Share of test questions.")] = 0.1,
    seed: Seed = 0,
    data: DataPath = None,
    form: FormatName = _OWN,
    answers: AnswerNames = Answers.LABELS,
    on_error: Malformation = OnError.REFUSE,
    home: Home = DEFAULT_HOME,
    force: Force = False,
) -> None:
    """Split a data set again, from all of its parts.

    `level`: half of the held-out questions are zero-shot, a quarter compositional and a quarter
    i.i.d., as GrailQA defines them; this needs gold programs (form, path or query).
    `path`: questions with the same topic entities and path stay together, so no paraphrase leaks.
    `random`: as in many published tables; this leaks paraphrases.
    The command writes a new data set into a directory. To use it, pass the directory as `--data`, or
    move it into KBQA_DATA (default: HOME/data).
    """
    if validation + test >= 1.0:
        raise DatasetError("--validation and --test leave no training questions: their sum must be below 1")
    name, place = _source(dataset, data, form)
    files = {part: directory / f"{part}.jsonl" for part in ("train", "validation", "test")}
    for file in files.values():
        _is_free(file, force)
    questions, malformed = _questions(name, place, None, seed, answers, on_error, data_directory(home))
    questions = [replace(question, level="") for question in questions]  # levels refer to the old split
    sizes = {"validation": round(validation * len(questions)), "test": round(test * len(questions))}
    splits = _SPLITTERS[by](questions, seed, sizes)
    if not splits.train or (test and not splits.test):
        raise DatasetError(f"{dataset}: {len(questions)} questions are too few to be split by {by}")
    parts = {part: getattr(splits, part) for part in files}
    _make(directory)
    for part, file in files.items():
        if parts[part]:
            _write(file, parts[part])
        else:
            file.unlink(missing_ok=True)  # left from an earlier split
    _print(inspect(parts))
    outside = len(questions) - sum(map(len, parts.values()))
    if outside:
        typer.echo(f"{outside} questions without a gold program are in no split")
    _list(malformed, "skipped")


_SPLITTERS: dict[By, Callable[[Sequence[Question], int, dict[str, int]], Splits]] = {
    By.LEVEL: lambda questions, seed, sizes: split_by_level(questions, seed, **sizes),
    By.PATH: lambda questions, seed, sizes: split_by_path(questions, seed, cold_start=0, **sizes),
    By.RANDOM: lambda questions, seed, sizes: split_at_random(questions, seed, cold_start=0, **sizes),
}


def _source(dataset: str, data: Path | None, form: str) -> tuple[str, Path | None]:
    """The data set's name, and its file or directory if it is not in KBQA_DATA.

    Raises:
        DatasetError: the format is unknown, or given for a data set by name.
    """
    base = dataset.partition("@")[0]
    if data is None and base not in DATASETS and Path(dataset).exists():
        if form != _OWN and form not in FAMILIES:
            raise DatasetError(f'--format: no format "{form}" (known: {", ".join((_OWN, *FAMILIES))})')
        return form, Path(dataset)
    if form != _OWN:
        raise DatasetError(f"--format can only be used with a file or directory, and {dataset} is neither")
    return dataset, data


def _is_generated(name: str) -> bool:
    return name in DATASETS and name not in FAMILIES


def _splits(
    name: str, place: Path | None, seed: int, on_error: OnError, root: Path
) -> tuple[dict[str, tuple[Question, ...]], Sequence[Malformed]]:
    """The published parts of a data set; its splits if there are none, or its name asks for others (`@`)."""
    if not (_is_generated(name) or "@" in name or is_mixture(name)):
        published = open_published(name, root, place, on_error=on_error)
        if Part.ALL not in published.parts:
            return {part: published.read(part) for part in published.parts}, published.malformed
    dataset = load_dataset(name, seed, root, data=place, on_error=on_error)
    parts = {field.name: getattr(dataset.splits, field.name) for field in fields(Splits)}
    return parts, dataset.malformed


def _questions(
    name: str,
    place: Path | None,
    part: Part | None,
    seed: int,
    answers: Answers,
    on_error: OnError,
    root: Path,
) -> tuple[list[Question], Sequence[Malformed]]:
    """All questions of a data set, or those of one of its parts."""
    if _is_generated(name):
        if part is not None:
            raise DatasetError(f"{name} is generated: it has no files and therefore no parts")
        splits = load_dataset(name, seed, root, data=place).splits
        return [*splits.cold_start, *splits.train, *splits.validation, *splits.test], ()
    base = name if is_mixture(name) else name.partition("@")[0]
    published = open_published(base, root, place, answers, on_error)
    if part is not None and part not in published.parts:
        raise DatasetError(f'{name} has no part "{part}" here (it has: {", ".join(published.parts)})')
    parts = published.parts if part is None else (part,)
    return [question for one in parts for question in published.read(one)], published.malformed


def _curated(questions: Sequence[Question], graph: str, home: Path) -> Curation:
    catalog = GraphCatalog(home)
    try:
        return curate(questions, LocalGraphTools(catalog, deadline_s=_QUERY_S), graph)
    finally:
        catalog.close()


def _is_free(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise DatasetError(f"{path} already exists: choose another name, or overwrite it with --force")


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(f"{directory} cannot be created: {error.strerror}") from error


def _write(path: Path, questions: Sequence[Question]) -> None:
    try:
        write_questions(path, questions)
    except OSError as error:
        raise DatasetError(f"{path} cannot be written: {error.strerror}") from error


def _print(found: Inspection) -> None:
    table = Table("", *found.splits, box=None)
    contents = found.splits.values()
    table.add_row("questions", *(str(split.questions) for split in contents))
    table.add_row("answers each", *(f"{split.answers:.1f}" for split in contents))
    for lack in ("answers", "topics", "program"):
        counts = [getattr(split, f"without_{lack}") for split in contents]
        if any(counts):
            table.add_row(f"without {lack}", *map(str, counts))
    for field, says in (("hops", "{} hops"), ("operations", "{}"), ("levels", "{}")):
        kinds = dict.fromkeys(kind for split in contents for kind in getattr(split, field))
        for kind in sorted(kinds) if field == "hops" else kinds:
            label = "hops unknown" if kind == 0 else says.format(kind)
            table.add_row(label, *(str(getattr(split, field).get(kind, 0)) for split in contents))
    Console().print(table)
    for name, leak in found.leaks.items():
        typer.echo(
            f"{name}: {leak.texts:.1%} of its texts also occur in training; of {leak.with_path} questions "
            f"with a path, {leak.paths:.1%} have one that occurs in training, "
            f"{leak.pairs:.1%} with the same topics; {leak.wordings:.1%} have nearly the wording of one "
            f"in training; of {leak.with_answers} answered by names, {leak.answers:.1%} share their answers"
        )


def _list(malformed: Sequence[Malformed], says: str) -> None:
    """Print malformed records on standard error, because standard output may be piped."""
    if malformed:
        typer.echo(f"{says}: {len(malformed)} records", err=True)
    for record in malformed[:_LISTED]:
        typer.echo(f"  {record}", err=True)
    if len(malformed) > _LISTED:
        typer.echo(f"  … and {len(malformed) - _LISTED} more", err=True)
