"""ComplexWebQuestions (Talmor and Berant 2018): compositions of WebQSP's questions over Freebase.

    [{"ID": …, "question": …, "sparql": …, "compositionality_type": …,
      "answers": [{"answer": …, "answer_id": "m.…", "aliases": […]}],
      "topic_entity"?: {"m.…": label}}]

A version that is published with language models has one `answer`, a label, instead of `answers`.
"""

from __future__ import annotations

from typing import Any

from kbqa.datasets.formats import (
    Answers,
    QuestionSource,
    called,
    identity,
    json_list,
    optional_text,
    require,
    unique,
)
from kbqa.datasets.programs import of_query, path_from
from kbqa.trajectory import Question

_OPERATIONS = {
    "composition": "path",
    "conjunction": "intersection",
    "superlative": "superlative",
    "comparative": "comparison",
}


def _question(record: Any, source: QuestionSource) -> Question:
    id_, sparql = identity(record, "ID"), optional_text(record, "sparql")
    gold = of_query(sparql)
    named = record.get("topic_entity")
    answers = _answers(record)
    topics = tuple(named) if isinstance(named, dict) and named else gold.topics
    return Question(
        id=id_,
        text=require(record, "question", str),
        answers=unique([_gold(*names, source.answers) for names in answers]),
        topic_entities=topics,
        kg=source.kg,
        path=path_from(gold, topics),
        sparql=sparql,
        operation=_OPERATIONS.get(optional_text(record, "compositionality_type")) or gold.operation,
        names=called(answers, source.answers),
    )


def _answers(record: dict[str, Any]) -> list[tuple[str, str]]:
    """(id, label) of each answer; either may be empty."""
    if isinstance(record.get("answer"), str) and "answers" not in record:
        return [("", record["answer"])]
    return [_names(answer) for answer in require(record, "answers", list)]


def _names(answer: Any) -> tuple[str, str]:
    if not isinstance(answer, dict):
        raise ValueError('"answers" is not a list of objects')
    return optional_text(answer, "answer_id"), optional_text(answer, "answer")


def _gold(id_: str, label: str, form: Answers) -> str:
    """The answer's id or label, or the other one: some entities have no label, and values have no id."""
    return id_ or label if form is Answers.IDS else label or id_


CWQ = json_list("cwq", _question)
