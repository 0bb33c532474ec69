"""T-REx (ElSahar et al. 2018) as slot filling, as KILT publishes it: facts of Wikidata by their labels.

{"id": …, "input": "Germany [SEP] capital", "output": [{"answer": "Berlin", "provenance": […]}], "meta": {…}}
"""

from __future__ import annotations

from typing import Any

from kbqa.datasets.formats import QuestionSource, identity, json_lines, optional_text, require, unique
from kbqa.trajectory import Hop, Question

_SEPARATOR = "[SEP]"


def _question(record: Any, source: QuestionSource) -> Question:
    text = require(record, "input", str)
    subject, separator, relation = (part.strip() for part in text.partition(_SEPARATOR))
    if not subject or not relation or _SEPARATOR in relation:
        raise ValueError(f'"input" is not written subject {_SEPARATOR} relation')
    outputs = require(record, "output", list)
    if not all(isinstance(output, dict) for output in outputs):
        raise ValueError('"output" is not a list of objects')
    answers = unique([optional_text(output, "answer") for output in outputs])
    if not answers:
        raise ValueError('no "output" has an "answer"')
    return Question(
        id=identity(record, "id"),
        text=f"{subject} {separator} {relation}",
        answers=answers,
        topic_entities=(subject,),
        kg=source.kg,
        path=(Hop(relation),),
        operation="path",
    )


TREX = json_lines("trex", _question)
