"""SimpleQuestions (Bordes et al. 2015): one fact of Freebase each.

    www.freebase.com/m/04whkz5   www.freebase.com/book/written_work/subjects   www.freebase.com/m/01cj3p
    what is the book e about

on one line, with tabs between: subject, relation, object, question. The object is the answer,
by its id: the set has no labels.
"""

from __future__ import annotations

from kbqa.datasets.formats import Format, QuestionSource, lines
from kbqa.trajectory import Hop, Question

_SITE = "www.freebase.com/"


def _question(line: str, source: QuestionSource) -> Question:
    fields = line.split("\t")
    if len(fields) != 4:
        raise ValueError("expected subject, relation, object and question between tabs")
    subject, relation, object_ = (_name(field) for field in fields[:3])
    return Question(
        id=source.id,
        text=fields[3].strip(),
        answers=(object_,),
        topic_entities=(subject,),
        kg=source.kg,
        path=(Hop(relation),),
        operation="path",
    )


def _name(field: str) -> str:
    """Convert `www.freebase.com/m/04whkz5` to `m.04whkz5`."""
    name = field.strip().removeprefix("http://").removeprefix(_SITE)
    if name == field.strip() or not name:
        raise ValueError(f'"{field}" does not have the form {_SITE}m/…')
    return name.replace("/", ".")


SIMPLEQUESTIONS = Format("simplequestions", lines, _question, unit="line")
