"""The members of logical forms in a memory-mapped index, as the queries find them to which they compile.

Sets of nodes are ascending arrays of their numbers, bounded like those of a path (`MAX_FRONTIER`). No join
leads to an entity that the whole form names, as `Distinct.ENTITIES` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kbqa.errors import LogicalFormError
from kbqa.kg.embedded.indexing import TYPE_RELATIONS
from kbqa.kg.embedded.values import Value, literal_value, value_of
from kbqa.kg.embedded.walks import Numbers, concatenated, spread
from kbqa.kg.store import MAX_FRONTIER
from kbqa.logical_forms.algebra import (
    NOW,
    And,
    Class,
    Comparator,
    Comparison,
    Count,
    Entity,
    Expression,
    Extreme,
    Join,
    Literal,
    Path,
    Relation,
    Superlative,
    Timed,
    entities,
)
from kbqa.logical_forms.compiler import interval, literal_term

if TYPE_CHECKING:
    from kbqa.kg.embedded.adjacency import Adjacency

Mask = npt.NDArray[np.bool_]

_KEPT = 1 << 16  # values of nodes that are kept
_KEPT_SETS = 256  # sets that are kept, each of at most `MAX_FRONTIER` numbers
_HOLDS = {Comparator.LE: le, Comparator.LT: lt, Comparator.GE: ge, Comparator.GT: gt}


class NodeSet(NamedTuple):
    """Numbers of nodes, ascending; `complete` is False if a bound left nodes out."""

    nodes: Numbers
    complete: bool = True

    def among(self, kept: Mask) -> NodeSet:
        """The set, reduced to the nodes where the mask is True."""
        return self._replace(nodes=self.nodes[kept])


class FormIndex:
    """Evaluates logical forms over one graph.

    Args:
        index: may be a weak proxy, since the index may hold this.
        now: the day that NOW means, such as `2015-08-10`.
    """

    def __init__(self, index: Adjacency, *, now: str) -> None:
        self._index, self._now = index, now
        self._value = lru_cache(_KEPT)(lambda node: value_of(index.id_at(node)))
        self._types = index.links_named(*TYPE_RELATIONS)
        # A form is expanded step by step, so its parts were evaluated just before.
        self._members = lru_cache(_KEPT_SETS)(self._evaluated)

    def members(self, form: Expression, *, returning: bool = False) -> NodeSet:
        """All members of a form that is no COUNT.

        Args:
            returning: keep the entities that the form names in the sets of joins.

        Raises:
            LogicalFormError: the form begins with a comparison, whose members cannot be listed, or TC's
                relation belongs to no known pair.
        """
        return self._members(form, () if returning else entities(form))

    def values(self, nodes: Numbers, path: Path) -> tuple[Numbers, list[Value]]:
        """The numbers and dates at the end of a path from each node.

        Returns:
            The position in `nodes` from which each value was reached, and the values.
        """
        places: Numbers = np.arange(len(nodes))
        ends = nodes
        for relation in path:
            places, ends = self._step(places, ends, relation)
        found = [(place, self._value(end)) for place, end in zip(places.tolist(), ends.tolist(), strict=True)]
        kept = [(place, value) for place, value in found if value is not None]
        return np.array([place for place, _ in kept], np.int64), [value for _, value in kept]

    def _evaluated(self, form: Expression, apart: tuple[str, ...]) -> NodeSet:
        match form:
            case Class(name):
                return self._walked(self._numbers([name]), True, self._types)
            case Join(relation, source):
                found = self._joined(relation, source, apart)
                return found.among(~np.isin(found.nodes, self._numbers(apart)))
            case And():
                first, *others = sorted(_conjuncts(form), key=_is_filter)
                found = self._members(first, apart)
                for other in others:
                    found = found.among(self._are_members(found.nodes, other, apart))
                return found
            case Superlative(extreme, source, path):
                found = self._members(source, apart)
                return found._replace(nodes=self._extreme(found.nodes, extreme, path))
            case Timed(source, relation, time):
                found = self._members(source, apart)
                return found.among(self._held(found.nodes, relation, time))
            case Comparison():
                raise LogicalFormError("a comparison selects from a set: write (AND set (gt relation value))")
            case Count():
                raise LogicalFormError("COUNT has no members that the graph holds")

    def _are_members(self, nodes: Numbers, form: Expression, apart: tuple[str, ...]) -> Mask:
        """A mask of the nodes that belong to a form, found without listing all of its members."""
        match form:
            case Comparison(comparator, path, literal):
                return self._compared(nodes, comparator, path, literal)
            case Class(name):
                return self._are_linked(nodes, self._numbers([name]), True, self._types)
            case Join(relation, (Entity() | Literal()) as leaf):
                links = self._index.links_named(relation.name)
                return self._are_linked(nodes, self._leaf(leaf), not relation.inverse, links)
            case _:
                return np.isin(nodes, self._members(form, apart).nodes)

    def _joined(
        self, relation: Relation, source: Entity | Literal | Expression, apart: tuple[str, ...]
    ) -> NodeSet:
        links = self._index.links_named(relation.name)
        if isinstance(source, Entity | Literal):
            return self._walked(self._leaf(source), not relation.inverse, links)
        before = self._members(source, apart)
        found = self._walked(before.nodes, not relation.inverse, links)
        return found._replace(complete=found.complete and before.complete)

    def _walked(self, nodes: Numbers, inverse: bool, links: Sequence[int]) -> NodeSet:
        # Nodes that are left out later must not take the place of others.
        reached = spread(self._index.side(inverse=inverse), nodes, links, MAX_FRONTIER)
        return NodeSet(reached.nodes, reached.complete)

    def _are_linked(self, nodes: Numbers, others: Numbers, inverse: bool, links: Sequence[int]) -> Mask:
        """A mask of the nodes to which a relation leads from one of `others`."""
        side = self._index.side(inverse=inverse)
        are_linked = np.zeros(len(nodes), bool)
        for other in others.tolist():
            for link in links:
                neighbours = np.asarray(side.neighbours(other, link))
                if len(neighbours):
                    places = np.minimum(np.searchsorted(neighbours, nodes), len(neighbours) - 1)
                    are_linked |= neighbours[places] == nodes
        return are_linked

    def _step(self, places: Numbers, nodes: Numbers, relation: Relation) -> tuple[Numbers, Numbers]:
        """One hop from each node, with the place that it began at."""
        side = self._index.side(inverse=relation.inverse)
        reached: list[tuple[Numbers, Numbers]] = []
        for link in self._index.links_named(relation.name):
            first, end = side.runs(nodes, link)
            reached.append((np.repeat(places, end - first), side.neighbours_at(concatenated(first, end))))
        if not reached:
            return places[:0], nodes[:0]
        return np.concatenate([at for at, _ in reached]), np.concatenate([ends for _, ends in reached])

    def _extreme(self, nodes: Numbers, extreme: Extreme, path: Path) -> Numbers:
        """The nodes that share the greatest or the smallest value; numbers come before dates."""
        places, values = self.values(nodes, path)
        kinds = {value.is_date for value in values}
        valued = [(p, v.key) for p, v in zip(places.tolist(), values, strict=True) if v.is_date is min(kinds)]
        if not valued:
            return nodes[:0]
        best = (max if extreme is Extreme.MAX else min)(key for _, key in valued)
        return nodes[np.unique(np.array([place for place, key in valued if key == best], np.int64))]

    def _compared(self, nodes: Numbers, comparator: Comparator, path: Path, literal: Literal) -> Mask:
        kept = np.zeros(len(nodes), bool)
        bound = literal_value(literal)
        if bound is not None:
            for place, value in zip(*self.values(nodes, path), strict=True):
                kept[place] |= value.comparable(bound) and _HOLDS[comparator](value.key, bound.key)
        return kept

    def _held(self, nodes: Numbers, relation: Relation, time: str) -> Mask:
        """A mask of the nodes whose interval includes a time; see `compiler._Writer._timed`."""
        begin, end = (Relation(name) for name in interval(relation.name))
        day = self._now if time == NOW else time
        begun = self._open_or(nodes, begin, lambda moment: moment < f"{day}~")
        return begun & self._open_or(nodes, end, lambda moment: moment >= day)

    def _open_or(self, nodes: Numbers, relation: Relation, holds: Callable[[str], bool]) -> Mask:
        """A mask of the nodes that have no such fact, or one that satisfies the condition."""
        places, ends = self._step(np.arange(len(nodes)), nodes, relation)
        kept = np.ones(len(nodes), bool)
        kept[places] = False
        for place, end in zip(places.tolist(), ends.tolist(), strict=True):
            kept[place] |= holds(self._index.label_at(end))
        return kept

    def _leaf(self, leaf: Entity | Literal) -> Numbers:
        if isinstance(leaf, Entity):
            return self._numbers([leaf.id])
        return self._index.numbers([literal_term(leaf)])

    def _numbers(self, names: Iterable[str]) -> Numbers:
        """Nodes by id or label; several may share a label."""
        return self._index.numbers(id_ for name in names for id_ in self._index.resolve_entity(name))


def _conjuncts(form: Expression) -> Iterator[Expression]:
    if isinstance(form, And):
        yield from _conjuncts(form.left)
        yield from _conjuncts(form.right)
    else:
        yield form


def _is_filter(form: Expression) -> int:
    """Order in which operands of AND are evaluated: small sets first, comparisons last."""
    return 2 if isinstance(form, Comparison) else 1 if isinstance(form, Class) else 0
