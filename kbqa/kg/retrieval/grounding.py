"""Grounds whole logical forms: RRCG gates each relation of an expression in its place.

The candidates for a relation are, for JOIN, the relations of its operand; for ARGMAX, ARGMIN
and TC, the relations of the members to choose from; for a comparison, all relations of the
graph that have literal values (KBQA-R1's code, `relation_retrieval.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kbqa.errors import LogicalFormError
from kbqa.kg.actions import ErrorKind, Item
from kbqa.kg.handlers import failure, quote
from kbqa.kg.ranking.gating import IN, OUT, GateVerdict, Neighbours, RelationGate, Tier, read_relation
from kbqa.kg.retrieval.expressions import FormEvaluation, Unanswered
from kbqa.logical_forms.algebra import (
    NOW,
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
    Relation,
    Superlative,
    Timed,
)
from kbqa.logical_forms.compiler import to_sparql
from kbqa.logical_forms.s_expression import print_s_expression

Source = Entity | Literal | Expression

# Members of an expression whose relations are looked up; a relation that only other members have
# is found if it is named exactly.
SAMPLE = 1000
# Most similar relations that are checked for literal values.
_COMPARED = 20


class Grounding:
    """Replaces the relation texts in expressions by relations of the graph.

    Attributes:
        verdicts: one per relation, in the order of judging, which is operands first.
    """

    def __init__(self, evaluation: FormEvaluation, gate: RelationGate) -> None:
        self._evaluation, self._gate = evaluation, gate
        self.verdicts: list[GateVerdict] = []

    def details(self) -> list[dict[str, Any]]:
        """The verdicts as JSON, each with the text that was `written`."""
        return [{"written": v.written, **v.details(self._gate.top_k)} for v in self.verdicts]

    def expression(self, expression: Expression) -> Expression:
        """The expression with its relation texts replaced by relations of the graph.

        Raises:
            Unanswered: a relation is rejected, or there are no candidates for it.
            QueryError, GraphUnavailableError: as `FormEvaluation.members`.
        """
        match expression:
            case Class():
                return expression
            case And(left, right):
                return And(self.expression(left), self.expression(right))
            case Join(relation, source):
                grounded = source if isinstance(source, Entity | Literal) else self.expression(source)
                written = f"(R {relation.name})" if relation.inverse else relation.name
                return self.join(written, grounded, prefer=IN)
            case Superlative(extreme, source, path):
                candidates = self.expression(source)
                return Superlative(extreme, candidates, self._path(path, candidates))
            case Comparison(comparator, path, value):
                *before, last = path
                grounded_path = (*map(self._anywhere, before), self._anywhere(last, compared=True))
                return Comparison(comparator, grounded_path, value)
            case Timed(source, relation, time):
                members = self.expression(source)
                return Timed(members, self._step(relation, members, begins_or_ends), time)
            case Count(source):
                return Count(self.expression(source))
            case Ask(source, node):
                return Ask(self.expression(source), node)

    def join(self, written: str, source: Source, *, prefer: str = OUT) -> Join:
        """`(JOIN relation source)` with the relation that `written` means, in its direction.

        Raises: as `expression`.
        """
        neighbours = self._neighbours(source, read_relation(written)[0])
        found = self._judge(written, neighbours, source, prefer=prefer)
        return _reached(found, source)

    def _path(self, path: Path, members: Expression) -> Path:
        grounded: list[Relation] = []
        for relation in path:
            grounded.append(found := self._step(relation, members))
            members = _reached(found, members)
        return tuple(grounded)

    def _step(
        self, relation: Relation, members: Expression, fits: Callable[[str], bool] | None = None
    ) -> Relation:
        """Judge a relation that starts at the members; only fitting candidates, if there are any."""
        neighbours = self._neighbours(members, relation.name)
        if relation.inverse:
            neighbours = Neighbours(into=neighbours.into)
        else:
            fitting = tuple(item for item in neighbours.out if fits is not None and fits(item.id))
            neighbours = Neighbours(out=fitting or neighbours.out)
        return self._judge(relation.name, neighbours, members)

    def _anywhere(self, relation: Relation, *, compared: bool = False) -> Relation:
        """Judge a relation of a comparison, which has no start node; the last one leads to the value."""
        ranked = self._gate.ranker.rank(relation.name, top_k=_COMPARED)
        valued = self._evaluation.literal_valued(ranked) if compared else []
        candidates = tuple(valued or ranked)
        neighbours = Neighbours(into=candidates) if relation.inverse else Neighbours(out=candidates)
        return self._judge(relation.name, neighbours, None)

    def _judge(
        self, written: str, neighbours: Neighbours, node: Source | None, *, prefer: str = OUT
    ) -> Relation:
        """The relation that `written` means, as seen from the node: inverse if the node is its tail."""
        where = "the graph" if node is None else print_source(node)
        verdict = self._gate.judge(written, neighbours, prefer=prefer)
        if verdict is None:
            message = f"No relations found for {quote(where)} in knowledge graph"
            raise Unanswered(failure(ErrorKind.NO_RELATIONS_FOUND, message))
        if verdict.tier is Tier.LOW:
            raise Unanswered(verdict.rejection(where))
        self.verdicts.append(verdict)
        name = self._evaluation.names.written(verdict.relation.id)
        return Relation(name, inverse=verdict.relation.direction == IN)

    def _neighbours(self, source: Source, name: str) -> Neighbours:
        """The relations of a node, or of up to `SAMPLE` members of an expression.

        Args:
            name: a relation that is included even if no sampled member has it.
        """
        evaluation = self._evaluation
        if isinstance(source, Entity | Literal):
            return Neighbours.of(evaluation.store, evaluation.names.nodes(source))
        evaluation.check(source)
        members = evaluation.members(source, limit=SAMPLE)
        if not members.items:
            message = f"No entities found for expression {quote(print_source(source))} in knowledge graph"
            raise Unanswered(failure(ErrorKind.NO_ENTITIES_FOUND, message))
        neighbours = Neighbours.of(evaluation.store, [item.id for item in members.items])
        if not members.truncated:
            return neighbours
        return Neighbours(
            neighbours.out + self._missed(neighbours.out, source, name, inverse=True),
            neighbours.into + self._missed(neighbours.into, source, name, inverse=False),
        )

    def _missed(
        self, known: Sequence[Item], source: Expression, name: str, *, inverse: bool
    ) -> tuple[Item, ...]:
        """The relations with exactly this name that some member has, without the known ones."""
        evaluation = self._evaluation
        ids = set(evaluation.names.relations(name)) - {item.id for item in known}
        return tuple(
            item
            for id_, item in evaluation.store.items(sorted(ids)).items()
            if evaluation.members(_joined(Relation(id_, inverse), source), limit=1).items
        )


def _reached(relation: Relation, source: Source) -> Join:
    """The JOIN for what a relation leads to from a node; JOIN reads relations from the other end."""
    return _joined(replace(relation, inverse=not relation.inverse), source)


def _joined(relation: Relation, source: Source) -> Join:
    # JOIN does not accept a bare class; the class AND itself is an equivalent expression.
    return Join(relation, And(source, source) if isinstance(source, Class) else source)


def begins_or_ends(relation: str) -> bool:
    """Whether TC accepts a relation: one of a pair for the begin and end of an interval."""
    try:
        to_sparql(Timed(Class("c"), Relation(relation), NOW))
    except LogicalFormError:
        return False
    return True


def print_source(source: Source) -> str:
    """An operand of JOIN as text, for messages."""
    if isinstance(source, Entity):
        return source.id
    if isinstance(source, Literal):
        return source.lexical
    return print_s_expression(source)
