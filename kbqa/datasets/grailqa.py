"""GrailQA (Gu et al. 2021) and GraphQuestions (Su et al. 2016): graph queries over Freebase, put in words.

    [{"qid": 2101215000000, "question": …, "function": "none", "graph_query": {"nodes": […], "edges": […]},
      "sparql_query": …, "s_expression": …, "level": "zero-shot",
      "answer": [{"answer_type": "Entity" or "Value", "answer_argument": …, "entity_name": …}]}]

GraphQuestions has no level. As released in 2016, it has no form either, its answers are labels, and its
entities are keys of the Freebase of 2013 (`en.msnbc`), which later dumps do not contain. GrailQA's authors
released it again in 2020 for the dump of 2015, in GrailQA's form. GrailQA's training questions have no level.
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
from kbqa.datasets.programs import of_program, path_from
from kbqa.trajectory import Question

_OPERATIONS = {
    "count": "count",
    **dict.fromkeys(("max", "min", "argmax", "argmin"), "superlative"),
    **dict.fromkeys((">", ">=", "<", "<="), "comparison"),
}
_NAMELESS = "null"  # in place of the name of an entity without one
_LEVELS = ("i.i.d.", "compositional", "zero-shot")


def _question(record: Any, source: QuestionSource) -> Question:
    id_, topics = identity(record, "qid"), _topics(record)
    form, sparql = optional_text(record, "s_expression"), optional_text(record, "sparql_query")
    gold = of_program(form, sparql)
    level = optional_text(record, "level")
    if level and level not in _LEVELS:
        raise ValueError(f'"level" is "{level}", not one of {", ".join(_LEVELS)}')
    answers = [_names(answer) for answer in require(record, "answer", list)]
    return Question(
        id=id_,
        text=require(record, "question", str),
        answers=unique([_gold(*names, source.answers) for names in answers]),
        topic_entities=topics,
        kg=source.kg,
        path=path_from(gold, topics),
        form=form,
        sparql=sparql,
        operation=_OPERATIONS.get(optional_text(record, "function")) or gold.operation,
        level=level,
        names=called(answers, source.answers),
    )


def _topics(record: Any) -> tuple[str, ...]:
    """The grounded entities of the graph query."""
    nodes = require(require(record, "graph_query", dict), "nodes", list)
    grounded = [node for node in nodes if require(node, "node_type", str) == "entity"]
    return unique([require(node, "id", str) for node in grounded])


def _names(answer: Any) -> tuple[str, str]:
    """(id or value, label) of an answer; GraphQuestions of 2016 has one text, which becomes the first."""
    if isinstance(answer, str):
        return answer, ""
    argument, label = require(answer, "answer_argument", str), optional_text(answer, "entity_name")
    return argument, "" if label == _NAMELESS else label


def _gold(argument: str, label: str, form: Answers) -> str:
    return argument if form is Answers.IDS else label or argument


GRAILQA = json_list("grailqa", _question)
GRAPHQUESTIONS = json_list("graphquestions", _question)
