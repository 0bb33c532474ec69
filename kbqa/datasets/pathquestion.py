"""PathQuestion (Zhou et al. 2018): two- and three-hop questions over a Freebase subset.

It has no official split, and a random one leaks: nearly every test path is in train.
Ours goes by (topic entity, relation path).
"""

from __future__ import annotations

from pathlib import Path

from kbqa.errors import DatasetError
from kbqa.trajectory import Hop, Question


def read_pathquestion(path: Path, kg: str) -> list[Question]:
    """Questions of `PQ-2H.txt` or `PQ-3H.txt`: question, answers, path, separated by tabs.

    Raises:
        DatasetError: a line that does not fit; names file, line and reason.
    """
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) != 3 or "(" not in fields[1]:
            raise DatasetError(f"{path}:{number}: expected question, answer(a1/a2/) and path between tabs")
        text, answers, steps = fields
        listed = answers[answers.index("(") + 1 :].rstrip(") \t").split("/")
        topic, *rest = steps.split("#<end>")[0].split("#")
        questions.append(
            Question(
                id=f"{path.stem}-{number:05}",
                text=text.strip(),
                answers=tuple(sorted({a for a in listed if a})),
                topic_entities=(topic,),
                kg=kg,
                path=tuple(Hop(relation) for relation in rest[::2]),
            )
        )
    return questions
