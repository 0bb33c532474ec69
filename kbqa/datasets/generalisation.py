"""Levels of generalisation, as GrailQA defines them (Gu et al. 2021, section 3).

The level of a question follows from comparing its gold program with the training programs, by
schema items (relations and classes) and by combinations of items:

    zero-shot       an item of the program occurs in no training program
    compositional   all items occur in training, but not in the program's combination
    i.i.d.          a training program has the same combination

A combination is a program without its entities and values (`kbqa.curricula.patterns`).
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TypeVar

from kbqa.curricula.patterns import pattern
from kbqa.datasets.splits import Splits
from kbqa.errors import DatasetError, LogicalFormError
from kbqa.logical_forms.algebra import classes, relations
from kbqa.logical_forms.decomposition import CLASS_PREDICATE
from kbqa.logical_forms.graph_pattern import SelectQuery, is_variable, parse_select
from kbqa.logical_forms.s_expression import parse_s_expression
from kbqa.trajectory import Question

_STEP = re.compile(r"<[^>]*>|[^\s/|^*+!?()]+")


class Level(StrEnum):
    """The levels, as written in GrailQA's files."""

    IID = "i.i.d."
    COMPOSITIONAL = "compositional"
    ZERO_SHOT = "zero-shot"


_T = TypeVar("_T")

# Shares of the levels among GrailQA's held-out questions.
SHARES = {Level.ZERO_SHOT: 0.5, Level.COMPOSITIONAL: 0.25, Level.IID: 0.25}


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema items of a gold program, and their combination.

    Attributes:
        items: names of the program's relations and classes.
        combination: equal for programs that differ only in entities and values.
    """

    items: frozenset[str]
    combination: str


def schema_of(question: Question) -> Schema | None:
    """The schema of a question's S-expression, path or query, whichever it has first; None without one."""
    combination = pattern(question)
    if combination is None:
        return None
    try:
        return Schema(frozenset(_items(question)), combination)
    except LogicalFormError:
        return None


def level_of(question: Schema, training: Iterable[Schema]) -> Level:
    """The level of a question with the schema `question`."""
    known = list(training)
    if not question.items <= frozenset[str]().union(*(schema.items for schema in known)):
        return Level.ZERO_SHOT
    same = any(schema.combination == question.combination for schema in known)
    return Level.IID if same else Level.COMPOSITIONAL


def with_levels(training: Sequence[Question], held_out: Sequence[Question]) -> tuple[Question, ...]:
    """The held-out questions with their levels; a question without a gold program is unchanged."""
    known = set(filter(None, map(schema_of, training)))
    levels = dict[Schema, Level]()
    told = []
    for question in held_out:
        schema = schema_of(question)
        if schema is not None:
            level = levels.get(schema) or levels.setdefault(schema, level_of(schema, known))
            question = replace(question, level=level)
        told.append(question)
    return tuple(told)


def split_by_level(
    questions: Sequence[Question],
    seed: int,
    *,
    validation: int,
    test: int,
    withheld: float = 1.0,
) -> Splits:
    """Hold out questions so that their levels have GrailQA's shares, as far as possible.

    Zero-shot questions are held out by item, compositional ones by combination of the remaining
    items, and i.i.d. ones by topic within a known combination; never more than requested. Questions
    without a gold program are in no split. The cold start is empty; callers take it from train.

    Args:
        validation, test: numbers of questions requested.
        withheld: share of the items that may be withheld for zero-shot questions. If that is not one item,
            the other levels have equal shares.

    Raises:
        DatasetError: no question has a gold program.
    """
    schemas = [(question, schema_of(question)) for question in questions]
    pool = [(question, schema) for question, schema in schemas if schema is not None]
    if not pool:
        raise DatasetError(
            "no question has a gold program (path, form or query): there are no levels to split by"
        )
    rng = random.Random(f"levels/{seed}")
    wanted = validation + test
    held_out: list[Question] = []
    items = int(withheld * len(frozenset[str]().union(*(schema.items for _, schema in pool))))
    shares = SHARES if items else {Level.COMPOSITIONAL: 0.5, Level.IID: 0.5}
    choices: dict[Level, _Choice] = {
        Level.ZERO_SHOT: partial(_zero_shot, items=items),
        Level.COMPOSITIONAL: _compositional,
        Level.IID: _iid,
    }
    for level, share in shares.items():
        chosen = choices[level](pool, round(share * wanted), rng)
        held_out += [pool[index][0] for index in sorted(chosen)]
        pool = [pair for index, pair in enumerate(pool) if index not in chosen]
    training = tuple(question for question, _ in pool)
    told = with_levels(training, held_out)
    chosen_ones, tested = _divided(told, validation / wanted if wanted else 0.0, rng)
    return Splits((), training, chosen_ones, tested)


_Pool = list[tuple[Question, Schema]]
_Choice = Callable[[_Pool, int, random.Random], set[int]]


def _zero_shot(pool: _Pool, most: int, rng: random.Random, *, items: int) -> set[int]:
    """Choose at most `items` items to withhold; returns all questions that contain one of them."""
    having = defaultdict[str, set[int]](set)
    for index, (_, schema) in enumerate(pool):
        for item in sorted(schema.items):
            having[item].add(index)
    chosen: set[int] = set()
    for item in _shuffled(having, rng):
        grown = chosen | having[item]
        if items and len(grown) <= most:
            chosen = grown
            items -= 1
    return chosen


def _compositional(pool: _Pool, most: int, rng: random.Random) -> set[int]:
    """Choose whole combinations whose items stay in training in other combinations."""
    having = defaultdict[Schema, set[int]](set)
    for index, (_, schema) in enumerate(pool):
        having[schema].add(index)
    carriers = Counter(item for schema in having for item in schema.items)
    chosen: set[int] = set()
    for schema in _shuffled(having, rng):
        is_free = all(carriers[item] > 1 for item in schema.items)
        if is_free and len(chosen) + len(having[schema]) <= most:
            chosen |= having[schema]
            carriers.subtract(schema.items)
    return chosen


def _iid(pool: _Pool, most: int, rng: random.Random) -> set[int]:
    """Choose questions whose combination stays in training with other topics."""
    having = defaultdict[tuple[Schema, tuple[str, ...]], set[int]](set)
    for index, (question, schema) in enumerate(pool):
        having[schema, question.topic_entities].add(index)
    carriers = Counter(schema for schema, _ in having)
    chosen: set[int] = set()
    for group in _shuffled(having, rng):
        if carriers[group[0]] > 1 and len(chosen) + len(having[group]) <= most:
            chosen |= having[group]
            carriers[group[0]] -= 1
    return chosen


def _shuffled(groups: Iterable[_T], rng: random.Random) -> list[_T]:
    shuffled = list(groups)
    rng.shuffle(shuffled)
    return shuffled


def _divided(
    held_out: Sequence[Question], share: float, rng: random.Random
) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """Split each level into `share` and rest; questions with equal topics and pattern stay together."""
    parts: tuple[list[Question], list[Question]] = ([], [])
    for level in Level:
        groups = defaultdict[object, list[Question]](list)
        for question in held_out:
            if question.level == level:
                groups[question.topic_entities, pattern(question)].append(question)
        first = share * sum(map(len, groups.values()))
        taken = 0
        for group in _shuffled(groups.values(), rng):
            parts[0 if taken < round(first) else 1].extend(group)
            taken += len(group)
    return tuple(parts[0]), tuple(parts[1])


def _items(question: Question) -> Iterator[str]:
    if question.form:
        expression = parse_s_expression(question.form)
        yield from (*relations(expression), *classes(expression))
    elif question.path:
        yield from (hop.relation for hop in question.path)
    else:
        yield from _query_items(parse_select(question.sparql))


def _query_items(query: SelectQuery) -> Iterator[str]:
    while query.inner is not None:
        query = query.inner
    for triple in query.triples:
        if CLASS_PREDICATE.fullmatch(triple.predicate) and not is_variable(triple.object):
            yield query.iri(triple.object)
        else:
            yield from (query.iri(step) for step in _STEP.findall(triple.predicate))
