"""CK25, the corporate data set of the first TEXT2SPARQL challenge, and other question files of the challenge.

    dataset: {id: https://text2sparql.aksw.org/2025/corporate/, prefix: ck25}
    questions:
    - {id: 1, question: {en: …}, features: [SELECT], query: {sparql: …}}

The files have queries but no answers. If RDF files lie beside them (`prod-inst.ttl`, `prod-vocab.ttl`), the
gold answers are what the queries find there: the values in all columns and rows, or "true" or "false".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from kbqa.datasets.formats import Format, QuestionSource, identity, optional_text, require, unique
from kbqa.datasets.programs import of_query, path_from
from kbqa.errors import DatasetError, GraphLoadError, QueryError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.files import graph_files
from kbqa.kg.loading.scratch import ScratchDirectory
from kbqa.kg.retrieval.execute_sparql import solve
from kbqa.kg.store import GraphStore
from kbqa.trajectory import Question

_DEADLINE_S = 30.0

Execute = Callable[[str], tuple[str, ...]]
"""Query → the values that it finds; raises QueryError."""


def _records(file: Path) -> Iterator[tuple[int, tuple[Any, Execute]]]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise DatasetError(f"{file}{line}: not YAML: {error.problem}") from None
    questions = content.get("questions") if isinstance(content, dict) else None
    if not isinstance(questions, list):
        raise DatasetError(f'{file}: the format ck25 is a list of records under "questions"')
    with ExitStack() as opened:
        store = _store_beside(file, opened)
        execute = partial(_values, store) if store is not None else _nothing
        yield from ((place, (record, execute)) for place, record in enumerate(questions, start=1))


def _store_beside(file: Path, opened: ExitStack) -> GraphStore | None:
    """The graph of the RDF files beside a file, open as long as `opened`; None if there are none."""
    try:
        graph_files(file.parent)
    except GraphLoadError:
        return None
    directory = opened.enter_context(ScratchDirectory()).path
    catalog = opened.enter_context(closing(GraphCatalog(directory)))
    catalog.load("gold", file.parent)
    return catalog.get("gold")


def _values(store: GraphStore, query: str) -> tuple[str, ...]:
    found = solve(store, query, deadline_s=_DEADLINE_S)
    if found.boolean is not None:
        return (str(found.boolean).lower(),)
    return unique([row[name]["value"] for row in found.bindings for name in found.variables if name in row])


def _nothing(query: str) -> tuple[str, ...]:
    return ()


def _question(entry: tuple[Any, Execute], source: QuestionSource) -> Question:
    record, execute = entry
    texts = require(record, "question", dict)
    text = optional_text(texts, "en") or next((str(text) for text in texts.values()), "")
    if not text:
        raise ValueError('"question" has no text')
    sparql = require(require(record, "query", dict), "sparql", str).strip()
    try:
        answers = execute(sparql)
    except QueryError as error:
        raise ValueError(f"the query cannot be executed: {error}") from error
    gold = of_query(sparql)
    return Question(
        id=identity(record, "id"),
        text=text,
        answers=answers,
        topic_entities=gold.topics,
        kg=source.kg,
        path=path_from(gold, gold.topics),
        sparql=sparql,
        operation=gold.operation,
    )


CK25 = Format("ck25", _records, _question)
