"""Questions from a file: one JSON record a line.

    {"id", "text" or "question", "answers": […], "topic_entities": […],
     "kg"?, "graph"?, "path"?: [{"relation", "inverse"?}, …],
     "form"?, "sparql"?, "operation"?, "level"?}

Those are the fields of `Question`. RoG's records are read too: `a_entity` and `q_entity`
are then answers and topic entities, and the record's id names its subgraph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbqa.errors import DatasetError
from kbqa.trajectory import Hop, Question

_OPTIONAL = ("form", "sparql", "operation", "level")


def read_questions(path: Path) -> list[Question]:
    """The questions of a file.

    Raises:
        DatasetError: it cannot be read; names the line and the reason.
    """
    questions = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    try:
                        questions.append(_question(json.loads(line)))
                    except ValueError as error:
                        raise DatasetError(f"{path}:{number}: {error}") from None
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise DatasetError(f"{path}: the text is not UTF-8") from None
    if not questions:
        raise DatasetError(f"{path}: the file holds no questions")
    return questions


def _question(record: Any) -> Question:
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object")
    id_, graph = record.get("id"), record.get("graph")
    text = record.get("text", record.get("question"))
    if not isinstance(id_, str) or not isinstance(text, str):
        raise ValueError('expected an object with at least "id" and "text"')
    given = isinstance(graph, list)  # RoG's triples
    return Question(
        id=id_,
        text=text,
        answers=_texts(record, "answers", "a_entity"),
        topic_entities=_texts(record, "topic_entities", "q_entity"),
        kg=str(record.get("kg", "")),
        graph=id_ if given else graph,
        path=tuple(map(_hop, record.get("path", ()))),
        **{name: _text(record, name) for name in _OPTIONAL},
    )


def _text(record: Mapping[str, Any], name: str) -> str:
    text = record.get(name) or ""
    if not isinstance(text, str):
        raise ValueError(f'"{name}" is not a text')
    return text


def _texts(record: Mapping[str, Any], name: str, other: str) -> tuple[str, ...]:
    texts = record.get(name, record.get(other))
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f'"{name}" is not a list of texts')
    return tuple(texts)


def _hop(hop: Any) -> Hop:
    if not isinstance(hop, dict) or not isinstance(hop.get("relation"), str):
        raise ValueError('"path" is not a list of {"relation", "inverse"?}')
    return Hop(hop["relation"], inverse=bool(hop.get("inverse", False)))
