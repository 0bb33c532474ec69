"""Per-question graphs as RoG publishes them (Luo et al. 2024): one record per question.

    {"id": …, "question": …, "q_entity": […], "a_entity": […], "answer": […], "graph": [[s, r, o], …]}

Records are written one per line; a JSON array of records is accepted too, but read at once. (To
convert the published parquet files, use the package `datasets`:
`load_dataset("rmanluo/RoG-webqsp")["test"].to_json("test.jsonl")`.)
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kbqa.kg.loading.lines import LineSource

_MAX_LINE_BYTES = 1 << 26

Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class RogRecord:
    """A question's subgraph."""

    id: str
    triples: tuple[Triple, ...]


def read_records(source: LineSource, reject: Callable[[int, str], None]) -> Iterator[RogRecord]:
    """Yield the records of a file; `reject` receives the line and reason of each bad record."""
    seen: set[str] = set()
    for line, value in _values(source, reject):
        try:
            record = _record(value)
            if record.id in seen:
                raise ValueError(f'a second record has the id "{record.id[:80]}"')
        except ValueError as error:
            reject(line, str(error))
            continue
        seen.add(record.id)
        yield record


def _record(value: Any) -> RogRecord:
    id_ = value.get("id") if isinstance(value, dict) else None
    if not isinstance(id_, str) or not id_:
        raise ValueError('expected a record with "id" and "graph"')
    graph = value.get("graph")
    if not isinstance(graph, list):
        raise ValueError(f'the record "{id_[:80]}" has no list "graph"')
    for triple in graph:
        fits = isinstance(triple, list) and len(triple) == 3
        if not fits or not all(isinstance(name, str) and name.strip() for name in triple):
            raise ValueError(f'a triple of "{id_[:80]}" is not [subject, relation, object]')
    return RogRecord(id_, tuple((head, relation, tail) for head, relation, tail in graph))


def _values(source: LineSource, reject: Callable[[int, str], None]) -> Iterator[tuple[int, Any]]:
    """(line, value) of every record."""
    if source.sample.lstrip().startswith(b"["):
        try:
            with io.BufferedReader(source) as reader:
                yield from ((1, value) for value in json.load(reader))
        except ValueError as error:
            reject(getattr(error, "lineno", 1), f"the file is not JSON: {error}")
        return
    for number, line in source.lines(reject, max_bytes=_MAX_LINE_BYTES):
        try:
            value = json.loads(line)
        except ValueError as error:
            reject(number, f"the line is not JSON: {error}")
            continue
        yield number, value
