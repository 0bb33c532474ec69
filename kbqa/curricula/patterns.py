"""Reasoning patterns: classes of questions that differ only in their entities, or also in their relations.

"We represent each reasoning process as a relation path and abstract it into a path composition
pattern; we cluster and deduplicate samples based on these patterns" (ISP-KGR, E.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal as Choice

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.algebra import (
    And,
    Ask,
    Class,
    Comparison,
    Count,
    Entity,
    Expression,
    Join,
    Literal,
    Path,
    Superlative,
    Timed,
    canonical,
)
from kbqa.logical_forms.graph_pattern import SelectQuery, is_variable, parse_select
from kbqa.logical_forms.s_expression import parse_s_expression
from kbqa.trajectory import Question

Abstraction = Choice["relations", "shape"]
"""`relations` leaves entities and values out of a program; `shape` also writes each relation as a letter."""


def pattern(question: Question, abstraction: Abstraction = "relations") -> str | None:
    """The reasoning pattern of a question; None where its gold program is unknown or cannot be read.

    >>> from kbqa.trajectory import Hop
    >>> path = (Hop("parent"), Hop("parent", inverse=True))
    >>> question = Question("q", "?", (), ("Ada",), "g", path=path)
    >>> pattern(question), pattern(question, "shape")
    ('* parent > ^parent', '* a > ^a')
    """
    names = _Letters() if abstraction == "shape" else str
    try:
        if question.form:
            return _form_pattern(parse_s_expression(question.form), names)
        if question.path:
            hops = (f"{'^' * hop.inverse}{names(hop.relation)}" for hop in question.path)
            return " ".join(filter(None, ["*", " > ".join(hops), question.operation]))
        if question.sparql:
            return _query_pattern(parse_select(question.sparql), names)
    except LogicalFormError:
        return None
    return None


def representatives(
    questions: Iterable[Question], most: int, abstraction: Abstraction = "relations"
) -> Iterator[Question]:
    """The first `most` questions of each pattern, and all questions without a pattern."""
    seen: Counter[str] = Counter()
    for question in questions:
        found = pattern(question, abstraction)
        if found is not None:
            seen[found] += 1
        if found is None or seen[found] <= most:
            yield question


class _Letters:
    """Gives each name a letter, in the order in which names first occur."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        number = len(self._letters)
        letter = chr(ord("a") + number % 26) + str(number // 26 or "")
        return self._letters.setdefault(name, letter)


def _form_pattern(expression: Expression, names: Callable[[str], str]) -> str:
    """An S-expression with entities and values masked."""

    def written(part: Expression | Entity | Literal) -> str:
        match part:
            case Class(name):
                return names(name)
            case Join(relation, source):
                return f"(JOIN {path((relation,))} {written(source)})"
            case And(left, right):
                return f"(AND {written(left)} {written(right)})"
            case Superlative(extreme, source, way):
                return f"(ARG{extreme} {written(source)} {path(way)})"
            case Comparison(comparator, way, _):
                return f"({comparator} {path(way)} *)"
            case Timed(source, relation, _):
                return f"(TC {written(source)} {path((relation,))} *)"
            case Count(source):
                return f"(COUNT {written(source)})"
            case Ask(source, _):
                return f"(ASK {written(source)} *)"
            case _:
                return "*"

    def path(relations: Path) -> str:
        return " > ".join(f"{'^' * relation.inverse}{names(relation.name)}" for relation in relations)

    return written(canonical(expression))


def _query_pattern(query: SelectQuery, names: Callable[[str], str]) -> str:
    """The triples, with variables lettered as they occur, and marks for an aggregate and for modifiers."""
    marks = "+".join(
        mark for mark, there in (("aggregate", query.aggregate), ("order", bool(query.modifiers))) if there
    )
    while query.inner is not None:
        query = query.inner
    variables = _Letters()

    def term(text: str) -> str:
        return f"?{variables(text)}" if is_variable(text) else "*"

    triples = [f"{term(t.subject)} {names(t.predicate)} {term(t.object)}" for t in query.triples]
    return " . ".join([*triples, *filter(None, [marks])])
