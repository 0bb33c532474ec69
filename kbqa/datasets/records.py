"""Reads and writes questions as JSON records, one per line.

    {"id", "text" or "question", "answers": […], "topic_entities": […],
     "kg"?, "graph"?, "path"?: [{"relation", "inverse"?}, …],
     "form"?, "sparql"?, "operation"?, "level"?, "wording"?,
     "variants"?: [[…], …], "names"?: [[answer, name, …], …]}

The fields are those of `Question`. RoG's records are read too: `a_entity` and `q_entity`
are then answers and topic entities, and the record's id names its subgraph.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kbqa.datasets.formats import QuestionSource, json_lines, optional_text, read
from kbqa.trajectory import Hop, Question

_OPTIONAL = ("form", "sparql", "operation", "level", "wording")


def read_questions(path: Path) -> list[Question]:
    """Read the questions of a file.

    Raises:
        DatasetError: the file cannot be read; names the line and the reason.
    """
    return list(read(path, RECORDS, "").questions)


def write_questions(path: Path, questions: Iterable[Question]) -> None:
    """Write questions for `read_questions`, without empty fields; the file is replaced atomically.

    Raises:
        OSError: the file cannot be written.
    """
    aside = path.with_name(f"{path.name}.part")
    with aside.open("w", encoding="utf-8") as file:
        for question in questions:
            file.write(json.dumps(as_record(question), ensure_ascii=False) + "\n")
    aside.replace(path)


def as_record(question: Question) -> dict[str, Any]:
    """A question as a JSON record, without empty fields."""
    record = {name: value for name, value in asdict(question).items() if value}
    return record | {"answers": question.answers, "topic_entities": question.topic_entities}


def _question(record: Any, source: QuestionSource) -> Question:
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object")
    id_, graph = record.get("id"), record.get("graph")
    text = record.get("text", record.get("question"))
    if not isinstance(id_, str) or not isinstance(text, str):
        raise ValueError('expected an object with at least "id" and "text"')
    path = record.get("path") or ()
    if not isinstance(path, list | tuple):
        raise ValueError('"path" is not a list of {"relation", "inverse"?}')
    given = isinstance(graph, list)  # RoG's triples
    return Question(
        id=id_,
        text=text,
        answers=_texts(record, "answers", "a_entity"),
        topic_entities=_texts(record, "topic_entities", "q_entity"),
        kg=str(record.get("kg") or source.kg),
        graph=id_ if given else graph,
        path=tuple(map(_hop, path)),
        variants=_lists(record, "variants"),
        names=_lists(record, "names"),
        **{name: optional_text(record, name) for name in _OPTIONAL},
    )


def _texts(record: Mapping[str, Any], name: str, other: str) -> tuple[str, ...]:
    texts = record.get(name, record.get(other))
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f'"{name}" is not a list of texts')
    return tuple(texts)


def _lists(record: Mapping[str, Any], name: str) -> tuple[tuple[str, ...], ...]:
    lists = record.get(name) or []
    fits = isinstance(lists, list) and all(isinstance(one, list) for one in lists)
    if not fits or not all(isinstance(text, str) for one in lists for text in one):
        raise ValueError(f'"{name}" is not a list of lists of texts')
    return tuple(map(tuple, lists))


def _hop(hop: Any) -> Hop:
    if not isinstance(hop, dict) or not isinstance(hop.get("relation"), str):
        raise ValueError('"path" is not a list of {"relation", "inverse"?}')
    return Hop(hop["relation"], inverse=bool(hop.get("inverse", False)))


RECORDS = json_lines("jsonl", _question)
