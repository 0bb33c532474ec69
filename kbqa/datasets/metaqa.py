"""MetaQA (Zhang et al. 2018): one- to three-hop questions about films.

    what does [Grégoire Colin] appear in\tBefore the Rain

A file of question types may be in the same directory, `1hop_test_qtype.txt`, or as published in
the parent directory, `1-hop/qa_test_qtype.txt` for `1-hop/vanilla/qa_test.txt`. Line i of it
belongs to question i.
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

# Part of a question type → relation between a film, always the subject, and that part.
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
        ValueError: a part of the type is unknown.
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
    """The query that yields the gold answers, as SPARQL over the names in `kb.txt`.

    The topic is not an answer. A path of three hops also does not continue from the topic after it
    came back by the relation by which it left, as from a film to its actors and on to their films.
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
    # VALUES names the topic once, so that a policy that imitates the query copies the name only once.
    begin = f"VALUES ?topic {{ <{entity_iri(topic)}> }}"
    return f"SELECT DISTINCT ?x WHERE {{ {begin} {' . '.join(pattern)}{''.join(apart)} }}"


def _comes_back(before: Hop, hop: Hop, is_last: bool) -> bool:
    """Whether two hops may lead back to their start, which the gold answers exclude."""
    if before.inverse == hop.inverse:
        return False
    return before.relation == hop.relation or (is_last and {before.relation, hop.relation} <= _PEOPLE)


def _records(file: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Lines with their question types; types are empty if there is no file of them."""
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
    """Read a question, and remove the brackets around its topic."""
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
