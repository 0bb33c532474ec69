"""WebQSP (Yih et al. 2016): web questions with annotated queries over Freebase.

    {"Questions": [{"QuestionId": "WebQTest-0", "RawQuestion": …, "ProcessedQuestion": …,
      "Parses": [{"Sparql": …, "TopicEntityMid": "m.…", "TopicEntityName": …,
                  "AnnotatorComment": {"ParseQuality": "Complete", "QuestionQuality": "Good", …},
                  "Answers": [{"AnswerType": "Entity" or "Value", "AnswerArgument": …, "EntityName": …}]}]}]}

A question may have several parses. Those that their annotator marked as complete, with a good question, are
sets of gold answers, each as right as the others; without such a mark, all parses are. The program and the
topic entity are those of the first.
"""

from __future__ import annotations

from typing import Any

from kbqa.datasets.formats import Answers, QuestionSource, called, json_list, optional_text, require, unique
from kbqa.datasets.programs import of_query, path_from
from kbqa.trajectory import Question


def _question(record: Any, source: QuestionSource) -> Question:
    parses = require(record, "Parses", list)
    if not parses:
        raise ValueError('"Parses" is empty')
    good = list(filter(_is_good, parses)) or parses
    named = [[_names(answer) for answer in require(parse, "Answers", list)] for parse in good]
    # A parse without an answer in Freebase cannot be right, unless there is no other.
    golds = dict.fromkeys(unique([_gold(*names, source.answers) for names in answers]) for answers in named)
    first, *variants = [gold for gold in golds if gold] or [()]
    parse = next((parse for parse, answers in zip(good, named, strict=True) if answers), good[0])
    sparql = optional_text(parse, "Sparql")
    topic = optional_text(parse, "TopicEntityMid")
    topics = (topic,) if topic else ()
    gold = of_query(sparql)
    return Question(
        id=require(record, "QuestionId", str),
        text=optional_text(record, "RawQuestion") or require(record, "ProcessedQuestion", str),
        answers=first,
        topic_entities=topics,
        kg=source.kg,
        path=path_from(gold, topics),
        sparql=sparql,
        operation=gold.operation,
        variants=tuple(variants),
        names=called((names for answers in named for names in answers), source.answers),
    )


def _is_good(parse: Any) -> bool:
    comment = parse.get("AnnotatorComment") if isinstance(parse, dict) else None
    quality = {"ParseQuality": "Complete", "QuestionQuality": "Good"}
    return isinstance(comment, dict) and quality.items() <= comment.items()


def _names(answer: Any) -> tuple[str, str]:
    """(id or value, label) of an answer; the label may be empty."""
    return require(answer, "AnswerArgument", str), optional_text(answer, "EntityName")


def _gold(argument: str, label: str, form: Answers) -> str:
    return argument if form is Answers.IDS else label or argument


WEBQSP = json_list("webqsp", _question, key="Questions")
