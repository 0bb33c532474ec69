"""RoG's data sets as released (Luo et al. 2024: RoG-webqsp, RoG-cwq): questions with a subgraph each.

    {"id": "WebQTrn-0", "question": …, "answer": […], "q_entity": […], "a_entity": […],
     "graph": [[head, relation, tail], …], "choices": []}

as JSON lines, a JSON list, or the parquet files of the hub (`train-00000-of-00002-….parquet`). They are
converted into the records of one graph, and questions in kbqa's own format.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from kbqa.datasets.formats import QuestionSource, identity, lines, require
from kbqa.datasets.records import as_record
from kbqa.errors import ConfigurationError, DatasetError
from kbqa.trajectory import Question

_SUFFIXES = (".parquet", ".jsonl", ".json")
# How file names begin, and the file of the data set that their questions go into.
_PARTS = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "dev": "validation",
    "test": "test",
}
_AT_ONCE = 64  # rows of a parquet file

Triples = list[list[str]]


@dataclass(slots=True)
class Converted:
    """What was written.

    Attributes:
        questions: number of questions of each part.
        nameless: triples left out because a name in them is empty.
    """

    questions: Counter[str] = field(default_factory=Counter)
    nameless: int = 0


def convert(files: Sequence[Path], name: str, directory: Path, graph: Path) -> Converted:
    """Write the questions of released files as a data set, and their subgraphs as one graph's records.

    Args:
        files: files or directories of them; the beginning of a file's name says which part it is.
        name: of the graph, which the questions refer to.
        directory: of the data set; gets `train.jsonl`, `validation.jsonl`, `test.jsonl`.
        graph: file for the records of the graph (`kbqa.kg.loading.rog`).

    Raises:
        DatasetError: a file is missing, malformed or of an unknown part, or two questions have the same id.
        ConfigurationError: there are parquet files, and pyarrow is not installed.
    """
    parts: dict[str, list[Path]] = {}
    for file in (found for path in files for found in _files_at(path)):
        parts.setdefault(_part(file), []).append(file)
    written = Converted()
    seen: set[str] = set()
    directory.mkdir(parents=True, exist_ok=True)
    with graph.open("w", encoding="utf-8") as records:
        for part, sources in parts.items():
            aside = directory / f"{part}.jsonl.part"
            with aside.open("w", encoding="utf-8") as questions:
                for question, given in _questions(sources, name):
                    if question.id in seen:
                        raise DatasetError(f'{sources[0]}: two records have the id "{question.id}"')
                    seen.add(question.id)
                    triples = [triple for triple in given if all(name.strip() for name in triple)]
                    _write(records, {"id": question.id, "graph": triples})
                    _write(questions, as_record(question))
                    written.nameless += len(given) - len(triples)
                    written.questions[part] += 1
    for part in written.questions:
        (directory / f"{part}.jsonl.part").replace(directory / f"{part}.jsonl")
    return written


def _write(file: TextIO, record: dict[str, Any]) -> None:
    file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _questions(files: Iterable[Path], name: str) -> Iterator[tuple[Question, Triples]]:
    """The questions of files, each with its triples."""
    for file in files:
        try:
            for place, record in _records(file):
                try:
                    yield _question(record, QuestionSource(file, place, name)), _triples(record)
                except ValueError as error:
                    raise DatasetError(f"{file}: record {place}: {error}") from None
        except (OSError, ValueError) as error:
            raise DatasetError(f"{file} cannot be read: {error}") from error


def _question(record: Any, source: QuestionSource) -> Question:
    answers = require(record, "answer", list) or require(record, "a_entity", list)
    topics = require(record, "q_entity", list)
    if not all(isinstance(text, str) for text in (*answers, *topics)):
        raise ValueError('"answer", "a_entity" or "q_entity" is not a list of texts')
    id_ = identity(record, "id")
    text = require(record, "question", str)
    return Question(id_, text, tuple(answers), tuple(topics), source.kg, graph=id_)


def _triples(record: Any) -> Triples:
    triples = require(record, "graph", list)
    for triple in triples:
        if not isinstance(triple, list) or len(triple) != 3 or not all(isinstance(n, str) for n in triple):
            raise ValueError('"graph" is not a list of [head, relation, tail]')
    return triples


def _records(file: Path) -> Iterator[tuple[int, Any]]:
    """(number from 1, record) of a file."""
    if file.suffix == ".parquet":
        yield from _rows(file)
    elif (first := next(lines(file), None)) is not None and first[1].lstrip().startswith("["):
        yield from enumerate(json.loads(file.read_text(encoding="utf-8-sig")), start=1)
    else:
        for number, line in lines(file):
            yield number, json.loads(line)


def _rows(file: Path) -> Iterator[tuple[int, Any]]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigurationError(
            f"{file}: parquet files are read with pyarrow, which is not installed: run pip install pyarrow, "
            "or convert them to JSON lines elsewhere (package datasets: load_dataset(…)[part].to_json(file))"
        ) from None
    place = 0
    for batch in ParquetFile(file).iter_batches(batch_size=_AT_ONCE):
        for record in batch.to_pylist():
            place += 1
            yield place, record


def _files_at(path: Path) -> list[Path]:
    """A file itself, or those under a directory that have a known suffix."""
    if not path.exists():
        raise DatasetError(f"{path}: there is no such file or directory")
    if path.is_file():
        return [path]
    found = [file for file in sorted(path.rglob("*")) if file.is_file() and file.suffix in _SUFFIXES]
    if not found:
        raise DatasetError(f"{path}: the directory has no files {', '.join(f'*{end}' for end in _SUFFIXES)}")
    return found


def _part(file: Path) -> str:
    for beginning, part in _PARTS.items():
        if file.name.lower().startswith(beginning):
            return part
    raise DatasetError(f"{file}: the name has to begin with one of {', '.join(_PARTS)}, which says its split")
