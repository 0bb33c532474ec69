"""Files of records, read one by one: what the formats of data sets have in common.

A format says how a file falls into records, and what question a record is. What does not
fit is a `Malformed` with its place, at which reading ends, or which is listed and left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from kbqa.errors import DatasetError
from kbqa.trajectory import Question

T = TypeVar("T")

_SAYS: dict[type, str] = {str: "a text", dict: "an object", list: "a list"}


class OnError(StrEnum):
    """What a malformed record does: ends the reading, or is left out and listed."""

    REFUSE = "refuse"
    SKIP = "skip"


class Answers(StrEnum):
    """How gold answers are named where a data set gives both; literals are their values anyhow."""

    LABELS = "labels"
    IDS = "ids"


@dataclass(frozen=True, slots=True)
class QuestionSource:
    """Where a record stands, and how its question is to be told.

    Attributes:
        place: of the record, from 1: its line, or its number in a JSON list.
        kg: name of the graph that the question is about.
    """

    file: Path
    place: int
    kg: str
    answers: Answers = Answers.LABELS

    @property
    def id(self) -> str:
        """For a question that its data set does not number."""
        return f"{self.file.stem}-{self.place:05}"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that is no question of its format.

    Attributes:
        place: as of `QuestionSource`.
        unit: what is counted: `line` or `record`.
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
    """How a data set is written.

    Attributes:
        records: the records of a file with their places; raises DatasetError if it has none to give.
        question: raises ValueError with the reason why a record is none.
        unit: as of `Malformed`.
    """

    name: str
    records: Callable[[Path], Iterator[tuple[int, Any]]]
    question: Callable[[Any, QuestionSource], Question]
    unit: str = "record"


@dataclass(frozen=True, slots=True)
class Reading:
    """The questions of a file, and what of it is none."""

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
    """The questions of a file.

    Raises:
        DatasetError: it cannot be read, holds no question, or holds a record that is none and
            is to be refused; names file, line or record, and reason.
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
    """The lines of a text that are not blank, without their ends."""
    with file.open(encoding="utf-8-sig") as text:
        for number, line in enumerate(text, start=1):
            if line.strip():
                yield number, line.rstrip("\n")


def json_lines(name: str, question: Callable[[Any, QuestionSource], Question]) -> Format:
    """A format of one JSON record a line."""
    return Format(name, lines, lambda line, source: question(json.loads(line), source), unit="line")


def json_list(name: str, question: Callable[[Any, QuestionSource], Question], key: str = "") -> Format:
    """A format of one JSON list of records, or of an object that has it under `key`."""

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
    """A field of a record that has to be there, of its kind.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object")
    value = record.get(name)
    if not isinstance(value, kind):
        raise ValueError(f'"{name}" is {"missing" if value is None else "not " + _SAYS[kind]}')
    return value


def optional_text(record: dict[str, Any], name: str) -> str:
    """A field that may be missing, or null: then it is empty.

    Raises:
        ValueError: it is something else than a text.
    """
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f'"{name}" is not a text')
    return value or ""


def identity(record: Any, name: str) -> str:
    """A record's id, which may be a number.

    Raises:
        ValueError: it has none.
    """
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object")
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f'"{name}" is no id')
    return str(value)


def unique(texts: Iterator[str] | list[str]) -> tuple[str, ...]:
    """Each text that is not empty once, in order."""
    return tuple(dict.fromkeys(text for text in texts if text))
