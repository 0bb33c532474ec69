"""The members of logical forms in a memory-mapped index, as the queries find them to which they compile.

Sets of nodes are ascending arrays of their numbers, bounded like those of a path (`MAX_FRONTIER`). No join
leads to an entity that the whole form names, as `Distinct.ENTITIES` says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from kbqa.kg.embedded.walks import Numbers, concatenated, fitting_ranges, spread
from kbqa.kg.forms import check_members, resolved_name
from kbqa.kg.store import MAX_FRONTIER, MAX_SURROUNDED
from kbqa.kg.values import Value, literal_value, value_of, written_as, written_value
from kbqa.logical_forms.algebra import (
    NOW,
    And,
    Class,
    Comparator,
    Comparison,
    Entity,
    Expression,
    Extreme,
    Join,
    Literal,
    Path,
    Relation,
    Superlative,
    Timed,
    conjuncts,
)
from kbqa.logical_forms.compiler import in_freebase_zone, interval, literal_term

if TYPE_CHECKING:
    from kbqa.kg.embedded.adjacency import Adjacency

Mask = npt.NDArray[np.bool_]

_KEPT = 1 << 16  # values of nodes that are kept
_KEPT_SETS = 256  # sets that are kept, each of at most `MAX_FRONTIER` numbers


class NodeSet(NamedTuple):
    """Numbers of nodes, ascending; `complete` is False if a bound left nodes out."""

    nodes: Numbers
    complete: bool = True

    def among(self, kept: Mask) -> NodeSet:
        """The set, reduced to the nodes where the mask is True."""
        return self._replace(nodes=self.nodes[kept])


class FormIndex:
    """Evaluates logical forms over one graph; safe for many threads.

    Args:
        index: may be a weak proxy, since the index may hold this.
        now: the day that NOW means, such as `2015-08-10`.
    """

    def __init__(self, index: Adjacency, *, now: str) -> None:
        self._index, self._now = index, now
        self._value = lru_cache(_KEPT)(lambda node: value_of(index.id_at(node)))
        self._written = lru_cache(_KEPT)(lambda node, as_: written_value(index.id_at(node), as_))
        self.holders = lru_cache(_KEPT_SETS)(partial(_holders, index))
        self.written_as = lru_cache(_KEPT_SETS)(partial(_judged, index))
        self._types = index.type_links
        # A form is expanded step by step, so its parts were evaluated just before.
        self._kept: LRUCache[tuple[Expression, tuple[str, ...]], NodeSet] = LRUCache(_KEPT_SETS)
        self._lock = threading.Lock()

    def members(self, form: Expression, apart: tuple[str, ...]) -> NodeSet:
        """All members of a form.

        Args:
            apart: names of the entities to which no join leads.

        Raises:
            LogicalFormError: as `check_members`.
        """
        check_members(form)
        return self._members(form, apart)

    def contains(self, form: Expression, leaf: Entity | Literal, apart: tuple[str, ...]) -> bool:
        """Whether a node, or one of several with its name, is a member of a form.

        Raises:
            LogicalFormError: as `check_members`.
        """
        check_members(form)
        among = NodeSet(self._leaf(leaf))
        for part in conjuncts(form):
            among = self._selected(among, part, apart)
        return bool(len(among.nodes))

    def nodes(self, names: Iterable[str]) -> Numbers:
        """The entities with some names, ascending; several may share a name."""
        resolve = self._index.resolve_entity
        return self._index.numbers(id_ for name in names for id_ in resolved_name(resolve, name))

    def values(self, nodes: Numbers, path: Path) -> tuple[Numbers, list[Value]]:
        """The numbers and dates at the end of a path from each node; of `MAX_EDGES` edges per hop at most.

        Returns:
            The position in `nodes` from which each value was reached, and the values.
        """
        places: Numbers = np.arange(len(nodes))
        ends = nodes
        for relation in path:
            places, ends = self._step(places, ends, relation)
        found = list(map(self._value, ends.tolist()))
        if not any(found) and (datatype := self._read_as(ends, path[-1])) is not None:
            found = [self._written(end, datatype) for end in ends.tolist()]
        kept = [
            (place, value) for place, value in zip(places.tolist(), found, strict=True) if value is not None
        ]
        return np.array([place for place, _ in kept], np.int64), [value for _, value in kept]

    def _read_as(self, ends: Numbers, relation: Relation) -> str | None:
        """The datatype as which the texts are read that a relation leads to."""
        # Most relations lead to entities, which a few of them show; to judge a relation takes longer.
        some = [self._index.id_at(end) for end in ends[:MAX_SURROUNDED].tolist()]
        return None if relation.inverse or written_as(some) is None else self.written_as(relation.name)

    def are_linked(self, nodes: Numbers, others: Numbers, inverse: bool, links: Sequence[int]) -> Mask:
        """A mask of the nodes to which a relation leads from one of `others`, whatever their degrees."""
        side = self._index.side(inverse=inverse)
        are_linked = np.zeros(len(nodes), bool)
        for other in others.tolist():
            for link in links:
                neighbours = np.asarray(side.neighbours(other, link))
                if len(neighbours):
                    # Of one type, or all neighbours of a hub would be converted.
                    wanted = nodes.astype(neighbours.dtype)
                    places = np.minimum(np.searchsorted(neighbours, wanted), len(neighbours) - 1)
                    # Nodes of a changed graph may have numbers that no neighbour in the base has.
                    are_linked |= (neighbours[places] == wanted) & (wanted == nodes)
        return are_linked

    def _members(self, form: Expression, apart: tuple[str, ...]) -> NodeSet:
        key = form, apart
        with self._lock:
            known = self._kept.get(key)
        if known is None:
            known = self._evaluated(form, apart)
            with self._lock:
                self._kept[key] = known
        return known

    def _evaluated(self, form: Expression, apart: tuple[str, ...]) -> NodeSet:
        match form:
            case Class(name):
                return self._walked(self.nodes([name]), True, self._types)
            case Join(relation, source):
                found = self._joined(relation, source, apart)
                return found.among(~np.isin(found.nodes, self.nodes(apart)))
            case And():
                return self._common(list(conjuncts(form)), apart)
            case Superlative(extreme, source, path):
                found = self._members(source, apart)
                return found._replace(nodes=self._extreme(found.nodes, extreme, path))
            case Timed(source, relation, time):
                found = self._members(source, apart)
                return found.among(self._held(found.nodes, relation, time))
            case _:
                raise AssertionError("checked before")

    def _common(self, forms: list[Expression], apart: tuple[str, ...]) -> NodeSet:
        """The members that all forms have. They are those of one form, from which the others select."""
        forms.sort(key=_is_filter)
        sets = [form for form in forms if not isinstance(form, Comparison)]
        # A set of which nodes were left out comes last.
        base = next((form for form in sets if self._members(form, apart).complete), sets[0])
        found = self._members(base, apart)
        for form in forms:
            if form is not base:
                found = self._selected(found, form, apart)
        return found

    def _selected(self, found: NodeSet, form: Expression, apart: tuple[str, ...]) -> NodeSet:
        """The nodes of a set that belong to a form; found without listing its members where possible."""
        nodes = found.nodes
        match form:
            case Comparison(comparator, path, literal):
                return found.among(self._compared(nodes, comparator, path, literal))
            case Class(name):
                return found.among(self.are_linked(nodes, self.nodes([name]), True, self._types))
            case Join(relation, (Entity() | Literal()) as leaf):
                links = self._index.links_named(relation.name)
                linked = self.are_linked(nodes, self._leaf(leaf), not relation.inverse, links)
                return found.among(linked & ~np.isin(nodes, self.nodes(apart)))
            case _:
                other = self._members(form, apart)
                both = found.among(np.isin(nodes, other.nodes))
                return both._replace(complete=found.complete and other.complete)

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
        reached = spread(self._index.side(inverse=inverse), nodes, links, MAX_FRONTIER)
        return NodeSet(reached.nodes, reached.complete)

    def _step(self, places: Numbers, nodes: Numbers, relation: Relation) -> tuple[Numbers, Numbers]:
        """One hop from each node, with the place that it began at."""
        side = self._index.side(inverse=relation.inverse)
        reached: list[tuple[Numbers, Numbers]] = []
        for link in self._index.links_named(relation.name):
            first, end = side.runs(nodes, link)
            fitting = fitting_ranges(first, end)
            first, end = first[:fitting], end[:fitting]
            reached.append(
                (np.repeat(places[:fitting], end - first), side.neighbours_at(concatenated(first, end)))
            )
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
                kept[place] |= value.comparable(bound) and comparator.holds(value.key, bound.key)
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
            return self.nodes([leaf.id])
        for reading in (leaf, in_freebase_zone(leaf)):
            found = self._index.numbers([literal_term(reading)])
            if len(found):
                return found
        return self.nodes([leaf.lexical])


def _judged(index: Adjacency, relation: str) -> str | None:
    """As `GraphStore.written_as`."""
    return written_as(_holders(index, relation, inverse=True, limit=MAX_SURROUNDED))


def _holders(index: Adjacency, relation: str, *, inverse: bool, limit: int) -> Sequence[str]:
    """As `GraphStore.holders`."""
    nodes = index.side(inverse=inverse).nodes_with(index.links_named(relation))
    # Evenly spread, since nodes are in the order of their names.
    return tuple(index.id_at(node) for node in nodes[:: max(1, -(-len(nodes) // limit))].tolist())


def _is_filter(form: Expression) -> int:
    """Order in which operands of AND are evaluated: classes are large sets, comparisons none."""
    return 2 if isinstance(form, Comparison) else 1 if isinstance(form, Class) else 0
