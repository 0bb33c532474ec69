"""MultiTQ (Chen et al. 2023): questions about dated facts (ICEWS05-15), by day, month and year.

    [{"quid": 2008980, "question": …, "answers": ["2005-07-12"], "answer_type": "time" or "entity",
      "time_level": "day", "qtype": "equal", "qlabel": "Single", "entities"?: […]}]

The operation is the set's own type: equal, first_last, before_after, equal_multi, after_first,
before_last. Entities are given by labels, which are also their ids; if a file does not list
them, they must be linked.
"""

from __future__ import annotations

from typing import Any

from kbqa.datasets.formats import QuestionSource, identity, json_list, optional_text, require, unique
from kbqa.trajectory import Question


def _question(record: Any, source: QuestionSource) -> Question:
    answers, topics = require(record, "answers", list), _topics(record)
    if not answers or not all(isinstance(text, str) for text in [*answers, *topics]):
        raise ValueError('"answers" or "entities" is not a list of texts')
    return Question(
        id=identity(record, "quid"),
        text=require(record, "question", str),
        answers=unique(answers),
        topic_entities=unique(topics),
        kg=source.kg,
        operation=optional_text(record, "qtype"),
    )


def _topics(record: dict[str, Any]) -> list[Any]:
    topics = record.get("entities", [])
    if not isinstance(topics, list):
        raise ValueError('"entities" is not a list')
    return topics


MULTITQ = json_list("multitq", _question)
