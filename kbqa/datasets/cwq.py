"""ComplexWebQuestions (Talmor and Berant 2018): compositions of WebQSP's questions over Freebase.

    [{"ID": …, "question": …, "sparql": …, "compositionality_type": …,
      "answers": [{"answer": …, "answer_id": "m.…", "aliases": […]}],
      "topic_entity"?: {"m.…": label}}]

A version that is published with language models has one `answer`, a label, instead of `answers`.
"""

from __future__ import annotations

from typing import Any

from kbqa.datasets.formats import Answers, QuestionSource, identity, json_list, optional_text, require, unique
from kbqa.datasets.programs import of_query, path_from
from kbqa.trajectory import Question


def _question(record: Any, source: QuestionSource) -> Question:
    id_, sparql = identity(record, "ID"), optional_text(record, "sparql")
    gold = of_query(sparql)
    named = record.get("topic_entity")
    topics = tuple(named) if isinstance(named, dict) and named else gold.topics
    return Question(
        id=id_,
        text=require(record, "question", str),
        answers=_answers(record, source.answers),
        topic_entities=topics,
        kg=source.kg,
        path=path_from(gold, topics),
        sparql=sparql,
        operation=gold.operation,
    )


def _answers(record: dict[str, Any], names: Answers) -> tuple[str, ...]:
    if isinstance(record.get("answer"), str) and "answers" not in record:
        return unique([record["answer"]])
    listed = require(record, "answers", list)
    return unique([_answer(answer, names) for answer in listed])


def _answer(answer: Any, names: Answers) -> str:
    """The answer's id or label, or the other one: some entities have no label, and values have no id."""
    if not isinstance(answer, dict):
        raise ValueError('"answers" is not a list of objects')
    label, id_ = optional_text(answer, "answer"), optional_text(answer, "answer_id")
    return id_ or label if names is Answers.IDS else label or id_


CWQ = json_list("cwq", _question)
