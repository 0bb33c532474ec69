"""WebQSP (Yih et al. 2016): web questions with annotated queries over Freebase.

    {"Questions": [{"QuestionId": "WebQTest-0", "RawQuestion": …, "ProcessedQuestion": …,
      "Parses": [{"Sparql": …, "TopicEntityMid": "m.…", "TopicEntityName": …,
                  "AnnotatorComment": {"ParseQuality": "Complete", "QuestionQuality": "Good", …},
                  "Answers": [{"AnswerType": "Entity" or "Value", "AnswerArgument": …, "EntityName": …}]}]}]}

If there are several parses, the first one is used that its annotator marked as complete, with a
good question; without such a mark, the first of all.
"""

from __future__ import annotations

from typing import Any

from kbqa.datasets.formats import Answers, QuestionSource, json_list, optional_text, require, unique
from kbqa.datasets.programs import of_query, path_from
from kbqa.trajectory import Question


def _question(record: Any, source: QuestionSource) -> Question:
    parses = require(record, "Parses", list)
    if not parses:
        raise ValueError('"Parses" is empty')
    parse = next(filter(_is_good, parses), parses[0])
    sparql = optional_text(parse, "Sparql") if isinstance(parse, dict) else ""
    answers = require(parse, "Answers", list)
    topic = optional_text(parse, "TopicEntityMid")
    topics = (topic,) if topic else ()
    gold = of_query(sparql)
    return Question(
        id=require(record, "QuestionId", str),
        text=optional_text(record, "RawQuestion") or require(record, "ProcessedQuestion", str),
        answers=unique([_answer(answer, source.answers) for answer in answers]),
        topic_entities=topics,
        kg=source.kg,
        path=path_from(gold, topics),
        sparql=sparql,
        operation=gold.operation,
    )


def _is_good(parse: Any) -> bool:
    comment = parse.get("AnnotatorComment") if isinstance(parse, dict) else None
    quality = {"ParseQuality": "Complete", "QuestionQuality": "Good"}
    return isinstance(comment, dict) and quality.items() <= comment.items()


def _answer(answer: Any, names: Answers) -> str:
    argument = require(answer, "AnswerArgument", str)
    return argument if names is Answers.IDS else optional_text(answer, "EntityName") or argument


WEBQSP = json_list("webqsp", _question, key="Questions")
