"""MetaQA (Zhang et al. 2018): one- to three-hop questions about films.

The published train files are large; a policy here trains on dev and is tested on test.
"""

from __future__ import annotations

import re
from pathlib import Path

from kbqa.errors import DatasetError
from kbqa.trajectory import Hop, Question

_TOPIC = re.compile(r"\[(.+?)\]")

# The other end of the edge that a question type names; films are always its subject.
_RELATIONS = {
    "director": "directed_by",
    "writer": "written_by",
    "actor": "starred_actors",
    "year": "release_year",
    "genre": "has_genre",
    "language": "in_language",
    "tag": "has_tags",
    "tags": "has_tags",
    "imdbrating": "has_imdb_rating",
    "imdbvotes": "has_imdb_votes",
}


def gold_path(question_type: str) -> tuple[Hop, ...]:
    """The relation path of a type such as `director_to_movie_to_language`.

    Raises:
        KeyError: a part of it is no known kind of thing.
    """
    kinds = question_type.split("_to_")
    return tuple(
        Hop(_RELATIONS[after]) if before == "movie" else Hop(_RELATIONS[before], inverse=True)
        for before, after in zip(kinds, kinds[1:], strict=False)
    )


def read_metaqa(directory: Path, hops: int, split: str, kg: str) -> list[Question]:
    """Questions of one hop count and split (`dev` or `test`), brackets around the topic removed.

    Raises:
        DatasetError: a line that does not fit; names file, line and reason.
    """
    path = directory / f"{hops}hop_{split}.txt"
    types = (directory / f"{hops}hop_{split}_qtype.txt").read_text(encoding="utf-8").splitlines()
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(types) != len(lines):
        raise DatasetError(f"{path}: {len(lines)} questions but {len(types)} question types")
    questions = []
    for number, (line, kind) in enumerate(zip(lines, types, strict=True), start=1):
        text, _, answers = line.partition("\t")
        topic = _TOPIC.search(text)
        if topic is None or not answers:
            raise DatasetError(f"{path}:{number}: expected a question with one [topic], a tab and answers")
        questions.append(
            Question(
                id=f"{path.stem}-{number:05}",
                text=_TOPIC.sub(r"\1", text),
                answers=tuple(dict.fromkeys(answers.split("|"))),
                topic_entities=(topic.group(1),),
                kg=kg,
                path=gold_path(kind),
            )
        )
    return questions
