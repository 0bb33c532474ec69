"""Reads files of records one by one: the part that all formats of data sets have in common.

A format splits a file into records, and converts records to questions. A record that does not
fit becomes a `Malformed` with its position; reading then fails, or the record is left out and
listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from kbqa.errors import DatasetError
from kbqa.trajectory import Question

T = TypeVar("T")

_SAYS: dict[type, str] = {str: "a text", dict: "an object", list: "a list"}


class OnError(StrEnum):
    """What to do about a malformed record: fail, or leave it out and list it."""

    REFUSE = "refuse"
    SKIP = "skip"


class Answers(StrEnum):
    """Whether gold answers are labels or ids, if a data set has both; literals are always values."""

    LABELS = "labels"
    IDS = "ids"


@dataclass(frozen=True, slots=True)
class QuestionSource:
    """The position of a record, and options for reading its question.

    Attributes:
        place: of the record, from 1: its line, or its number in a JSON list.
        kg: name of the graph that the question is about.
        answers: whether gold answers are labels or ids.
    """

    file: Path
    place: int
    kg: str
    answers: Answers = Answers.LABELS

    @property
    def id(self) -> str:
        """An id for a question that has none in its data set."""
        return f"{self.file.stem}-{self.place:05}"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that does not fit its format.

    Attributes:
        place: see `QuestionSource`.
        unit: what `place` counts: `line` or `record`.
    """

    file: Path
    place: int
    unit: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.place}" if self.unit == "line" else f"{self.file}: record {self.place}"
        return f"{where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Format:
    """The file format of a data set.

    Attributes:
        records: yields (place, record) for a file; raises DatasetError if the file has another structure.
        question: converts a record; raises ValueError with the reason if it does not fit.
        unit: see `Malformed`.
    """

    name: str
    records: Callable[[Path], Iterator[tuple[int, Any]]]
    question: Callable[[Any, QuestionSource], Question]
    unit: str = "record"


@dataclass(frozen=True, slots=True)
class Reading:
    """The questions of a file, and its malformed records."""

    questions: tuple[Question, ...]
    malformed: tuple[Malformed, ...] = ()


def read(
    file: Path,
    form: Format,
    kg: str,
    *,
    on_error: OnError = OnError.REFUSE,
    answers: Answers = Answers.LABELS,
) -> Reading:
    """Read the questions of a file.

    Raises:
        DatasetError: the file cannot be read, holds no questions, or holds a malformed record that is
            not to be skipped; names file, line or record, and reason.
    """
    questions, malformed = [], []
    try:
        for place, record in form.records(file):
            try:
                questions.append(form.question(record, QuestionSource(file, place, kg, answers)))
            except (ValueError, RecursionError) as error:
                found = Malformed(file, place, form.unit, str(error))
                if on_error is OnError.REFUSE:
                    raise DatasetError(str(found)) from None
                malformed.append(found)
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise DatasetError(f"{file}: the text is not UTF-8") from None
    if not questions:
        why = f"; {len(malformed)} records are malformed, first {malformed[0]}" if malformed else ""
        raise DatasetError(f"{file}: the file holds no questions of the format {form.name}{why}")
    return Reading(tuple(questions), tuple(malformed))


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each non-blank line of a file, without line ends."""
    with file.open(encoding="utf-8-sig") as text:
        for number, line in enumerate(text, start=1):
            if line.strip():
                yield number, line.rstrip("\n")


def json_lines(name: str, question: Callable[[Any, QuestionSource], Question]) -> Format:
    """A format with one JSON record per line."""

    def read_line(line: str, source: QuestionSource) -> Question:
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"the line is not JSON: {error.msg}, at character {error.pos + 1}") from None
        return question(record, source)

    return Format(name, lines, read_line, unit="line")


def json_list(name: str, question: Callable[[Any, QuestionSource], Question], key: str = "") -> Format:
    """A format with one JSON list of records, or an object with that list under `key`."""

    def records(file: Path) -> Iterator[tuple[int, Any]]:
        try:
            content = json.loads(file.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{file} is not JSON: {error}") from None
        found = content.get(key) if key and isinstance(content, dict) else content
        if not isinstance(found, list):
            expected = f'an object with a list of records under "{key}"' if key else "a list of records"
            raise DatasetError(f"{file}: the format {name} is {expected}")
        return iter(enumerate(found, start=1))

    return Format(name, records, question)


def require(record: Any, name: str, kind: type[T]) -> T:
    """A required field of a record.

    Raises:
        ValueError: the field is missing or of another type.
    """
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object")
    value = record.get(name)
    if not isinstance(value, kind):
        raise ValueError(f'"{name}" is {"missing" if value is None else "not " + _SAYS[kind]}')
    return value


def optional_text(record: dict[str, Any], name: str) -> str:
    """An optional text field; empty if it is missing or null.

    Raises:
        ValueError: the field is not a text.
    """
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f'"{name}" is not a text')
    return value or ""


def identity(record: Any, name: str) -> str:
    """A record's id, which may be a number.

    Raises:
        ValueError: the record has no valid id.
    """
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object")
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f'"{name}" is not an id')
    return str(value)


def called(answers: Iterable[tuple[str, str]], form: Answers) -> tuple[tuple[str, str], ...]:
    """(gold answer, other name) of the answers that have both an id and a label, given as (id, label)."""
    both = ((label, id_) if form is Answers.LABELS else (id_, label) for id_, label in answers)
    return tuple(dict.fromkeys((answer, name) for answer, name in both if answer and name and answer != name))


def unique(texts: Iterator[str] | list[str]) -> tuple[str, ...]:
    """The distinct non-empty texts, in order."""
    return tuple(dict.fromkeys(text for text in texts if text))
