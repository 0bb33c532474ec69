"""QALD-10 and related sets (Usbeck et al. 2023): questions in several languages over Wikidata.

    {"questions": [{"id": "0", "question": [{"language": "en", "string": …}, …], "query": {"sparql": …},
      "answers": [{"head": {"vars": […]}, "results": {"bindings": […]}} or {"head": {}, "boolean": true}]}]}

Questions are read in English, or else in their first language. Answers are ids and values:
the set has no labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbqa.datasets.formats import QuestionSource, identity, json_list, optional_text, require, unique
from kbqa.datasets.programs import of_query, path_from, short_id
from kbqa.trajectory import Question


def _question(record: Any, source: QuestionSource) -> Question:
    sparql = optional_text(require(record, "query", dict), "sparql")
    gold = of_query(sparql)
    return Question(
        id=identity(record, "id"),
        text=_text(require(record, "question", list)),
        answers=unique(list(_answers(require(record, "answers", list)))),
        topic_entities=gold.topics,
        kg=source.kg,
        path=path_from(gold, gold.topics),
        sparql=sparql,
        operation=gold.operation,
    )


def _text(versions: list[Any]) -> str:
    texts = {require(version, "language", str): require(version, "string", str) for version in versions}
    if not texts:
        raise ValueError('"question" has no text')
    return texts.get("en") or next(iter(texts.values()))


def _answers(results: list[Any]) -> Iterator[str]:
    for result in results:
        if isinstance(result, dict) and isinstance(result.get("boolean"), bool):
            yield str(result["boolean"]).lower()
            continue
        for binding in require(require(result, "results", dict), "bindings", list):
            if not isinstance(binding, dict):
                raise ValueError('"bindings" is not a list of objects')
            yield from (short_id(require(term, "value", str)) for term in binding.values())


QALD = json_list("qald-10", _question, key="questions")
