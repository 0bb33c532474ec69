"""PathQuestion (Zhou et al. 2018): two- and three-hop questions over a Freebase subset.

    what is the name of a 's wife ?\tb(b/)\ta#spouse#b#<end>#b

There is no official split, and a random split leaks: nearly every test path is in train.
Our split is by (topic entity, relation path).
"""

from __future__ import annotations

from kbqa.datasets.formats import Format, QuestionSource, lines
from kbqa.trajectory import Hop, Question


def _question(line: str, source: QuestionSource) -> Question:
    fields = line.split("\t")
    if len(fields) != 3 or "(" not in fields[1]:
        raise ValueError("expected question, answer(a1/a2/) and path between tabs")
    text, answers, steps = fields
    listed = answers[answers.index("(") + 1 :].rstrip(") \t").split("/")
    topic, *rest = steps.split("#<end>")[0].split("#")
    return Question(
        id=source.id,
        text=text.strip(),
        answers=tuple(sorted({a for a in listed if a})),
        topic_entities=(topic,),
        kg=source.kg,
        path=tuple(Hop(relation) for relation in rest[::2]),
    )


PATHQUESTION = Format("pathquestion", lines, _question, unit="line")
