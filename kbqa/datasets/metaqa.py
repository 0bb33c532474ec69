"""MetaQA (Zhang et al. 2018): one- to three-hop questions about films.

    what does [Grégoire Colin] appear in\tBefore the Rain

A file of question types may lie beside it, `1hop_test_qtype.txt`, or above, as published,
`1-hop/qa_test_qtype.txt` for `1-hop/vanilla/qa_test.txt`: line i belongs to question i.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbqa.datasets.formats import Format, QuestionSource, lines, unique
from kbqa.errors import DatasetError
from kbqa.kg.naming import entity_iri, relation_iri
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

_PEOPLE = {"directed_by", "written_by", "starred_actors"}


def gold_path(question_type: str) -> tuple[Hop, ...]:
    """The relation path of a type such as `director_to_movie_to_language`.

    Raises:
        ValueError: a part of it is no known kind of thing.
    """
    kinds = question_type.split("_to_")
    for kind in kinds:
        if kind != "movie" and kind not in _RELATIONS:
            raise ValueError(f'"{kind}" of the question type "{question_type}" is not a type in MetaQA')
    return tuple(
        Hop(_RELATIONS[after]) if before == "movie" else Hop(_RELATIONS[before], inverse=True)
        for before, after in zip(kinds, kinds[1:], strict=False)
    )


def gold_query(topic: str, path: Sequence[Hop]) -> str:
    """What the gold answers were made by, as SPARQL over the names of `kb.txt`.

    The topic is no answer. Nor does a path of three hops go on from the topic where it comes back by
    the relation that it left by, as from a film to its actors and on to their films.
    """
    pattern, apart, node = [], [], "?topic"
    for position, hop in enumerate(path):
        is_last = position + 1 == len(path)
        following = "?x" if is_last else f"?e{position}"
        subject, object_ = (following, node) if hop.inverse else (node, following)
        pattern.append(f"{subject} <{relation_iri(hop.relation)}> {object_}")
        if position and _comes_back(path[position - 1], hop, is_last):
            apart.append(f" FILTER ({following} != ?topic)")
        node = following
    # Named once, however often it is excluded: a policy that imitates this copies the name once.
    begin = f"VALUES ?topic {{ <{entity_iri(topic)}> }}"
    return f"SELECT DISTINCT ?x WHERE {{ {begin} {' . '.join(pattern)}{''.join(apart)} }}"


def _comes_back(before: Hop, hop: Hop, is_last: bool) -> bool:
    """Whether two hops may lead back to where they began, and the answers are made without that."""
    if before.inverse == hop.inverse:
        return False
    return before.relation == hop.relation or (is_last and {before.relation, hop.relation} <= _PEOPLE)


def _records(file: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Lines with their types, which are empty where no file has them."""
    beside = [folder / f"{file.stem}_qtype.txt" for folder in (file.parent, file.parent.parent)]
    types = next((path for path in beside if path.is_file()), None)
    if types is None:
        yield from ((number, (line, "")) for number, line in lines(file))
        return
    asked, kinds = list(lines(file)), list(lines(types))
    if len(kinds) != len(asked):
        raise DatasetError(f"{file}: {len(asked)} questions but {len(kinds)} question types")
    for (number, line), (_, kind) in zip(asked, kinds, strict=True):
        yield number, (line, kind.strip())


def _question(record: tuple[str, str], source: QuestionSource) -> Question:
    """Brackets around the topic are removed."""
    line, kind = record
    text, _, answers = line.partition("\t")
    topic = _TOPIC.search(text)
    if topic is None or not answers.strip():
        raise ValueError("expected a question with one [topic], a tab and answers")
    path = gold_path(kind) if kind else ()
    return Question(
        id=source.id,
        text=_TOPIC.sub(r"\1", text),
        answers=unique(answers.split("|")),
        topic_entities=(topic.group(1),),
        kg=source.kg,
        path=path,
        sparql=gold_query(topic.group(1), path) if path else "",
    )


METAQA = Format("metaqa", _records, _question, unit="line")
