"""LC-QuAD 2.0 (Dubey et al. 2019): questions from templates, paraphrased, over Wikidata.

    [{"uid": 19719, "NNQT_question": …, "question": …, "paraphrased_question": …,
      "sparql_wikidata": …, "template_id": …}]

The set has queries but no answers; `kbqa.datasets.curation` runs the queries. If a question
was not verbalised, its paraphrase is used, or else the template's text without brackets.
"""

from __future__ import annotations

import re
from typing import Any

from kbqa.datasets.formats import QuestionSource, identity, json_list, optional_text, require
from kbqa.datasets.programs import of_query, path_from
from kbqa.trajectory import Question

_TEXTS = ("question", "paraphrased_question", "NNQT_question")
_MARKS = re.compile(r"[{}<>]")
_NOTHING = ("", "n/a", "na", "[]")


def _question(record: Any, source: QuestionSource) -> Question:
    sparql = require(record, "sparql_wikidata", str).strip()
    texts = (_MARKS.sub("", _text(record, name)) for name in _TEXTS)
    text = next((" ".join(text.split()) for text in texts if text.strip().lower() not in _NOTHING), "")
    if not text:
        raise ValueError("it has no question, no paraphrase and no template question")
    gold = of_query(sparql)
    return Question(
        id=identity(record, "uid"),
        text=text,
        answers=(),
        topic_entities=gold.topics,
        kg=source.kg,
        path=path_from(gold, gold.topics),
        sparql=sparql,
        operation=gold.operation,
    )


def _text(record: dict[str, Any], name: str) -> str:
    """A text field; if it is a list, as some paraphrases are, its first text."""
    value = record.get(name)
    if isinstance(value, list):
        return next((text for text in value if isinstance(text, str)), "")
    return optional_text(record, name)


LCQUAD = json_list("lcquad-2", _question)
