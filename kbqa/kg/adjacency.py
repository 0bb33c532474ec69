"""One-hop look-ups in memory: a dictionary access each, whatever an entity's degree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from kbqa.kg.actions import Item
from kbqa.kg.store import Page

# Relations that say of what type an entity is.
TYPE_RELATIONS = frozenset(
    {
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
        "http://rdf.freebase.com/ns/type.object.type",
        "http://www.wikidata.org/prop/direct/P31",
        "type.object.type",
    }
)

K = TypeVar("K")
_in_order = attrgetter("label", "id")


class Adjacency:
    """The triples of a graph, indexed both ways.

    Built once and never changed, so that any number of threads may read it.

    Args:
        triples: (head, relation, tail), no triple twice.
        aliases: further labels of ids, as (label, id), beyond the items' own.
    """

    def __init__(
        self, triples: Iterable[tuple[Item, Item, Item]], aliases: Iterable[tuple[str, str]] = ()
    ) -> None:
        tail_entities: dict[tuple[str, str], list[Item]] = {}
        head_entities: dict[tuple[str, str], list[Item]] = {}
        self._nodes: dict[str, Item] = {}
        self._relations: dict[str, Item] = {}
        self._triples = 0
        for head, relation, tail in triples:
            self._triples += 1
            self._nodes[head.id] = head
            self._nodes[tail.id] = tail
            self._relations[relation.id] = relation
            tail_entities.setdefault((head.id, relation.id), []).append(tail)
            head_entities.setdefault((tail.id, relation.id), []).append(head)
        self._tail_entities = _in_tuples(tail_entities)
        self._head_entities = _in_tuples(head_entities)
        self._tail_relations = self._by_entity(tail_entities)
        self._head_relations = self._by_entity(head_entities)
        aliases = list(aliases)
        self._nodes_by_label = _by_label(self._nodes, aliases)
        self._relations_by_label = _by_label(self._relations, aliases)

    @property
    def triples(self) -> int:
        return self._triples

    def nodes(self) -> Iterator[tuple[str, Item]]:
        """Every label of every head and tail: (label, item)."""
        for item in self._nodes.values():
            if item.label == item.id:
                yield item.id, item
        for label, ids in self._nodes_by_label.items():
            for id_ in ids:
                yield label, self._nodes[id_]

    def resolve_entity(self, name: str) -> tuple[str, ...]:
        return (name,) if name in self._nodes else self._nodes_by_label.get(name, ())

    def resolve_relation(self, name: str) -> tuple[str, ...]:
        return (name,) if name in self._relations else self._relations_by_label.get(name, ())

    def item(self, id_: str) -> Item | None:
        return self._nodes.get(id_) or self._relations.get(id_)

    def items(self, ids: Sequence[str]) -> Mapping[str, Item]:
        return {id_: item for id_ in ids if (item := self.item(id_)) is not None}

    def relations(self) -> Sequence[Item]:
        return sorted(self._relations.values(), key=_in_order)

    def types(self) -> Sequence[Item]:
        types = {
            item.id: item
            for (_, relation), items in self._tail_entities.items()
            if relation in TYPE_RELATIONS
            for item in items
        }
        return sorted(types.values(), key=_in_order)

    def adjacent(self, nodes: Sequence[str]) -> frozenset[str]:
        found: set[str] = set()
        for node in nodes:
            for relation in self._tail_relations.get(node, ()):
                found.update(item.id for item in self._tail_entities[node, relation.id])
            for relation in self._head_relations.get(node, ()):
                found.update(item.id for item in self._head_entities[node, relation.id])
        return frozenset(found)

    def tail_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        return _page([self._tail_relations.get(e, ()) for e in entities], limit, offset)

    def head_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        return _page([self._head_relations.get(e, ()) for e in entities], limit, offset)

    def tail_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        return _page(
            [self._tail_entities.get((e, r), ()) for e in entities for r in relations], limit, offset
        )

    def head_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        return _page(
            [self._head_entities.get((e, r), ()) for e in entities for r in relations], limit, offset
        )

    def _by_entity(self, index: Iterable[tuple[str, str]]) -> dict[str, tuple[Item, ...]]:
        """Entity → its relations, from (entity, relation)."""
        relations: dict[str, list[Item]] = {}
        for entity, relation in index:
            relations.setdefault(entity, []).append(self._relations[relation])
        return _in_tuples(relations)


def _in_tuples(index: Mapping[K, list[Item]]) -> dict[K, tuple[Item, ...]]:
    return {
        key: tuple(sorted(items, key=_in_order) if len(items) > 1 else items) for key, items in index.items()
    }


def _by_label(items: Mapping[str, Item], aliases: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Label → ids, for labels that are not the id itself."""
    found: dict[str, set[str]] = {}
    for item in items.values():
        if item.label != item.id:
            found.setdefault(item.label, set()).add(item.id)
    for label, id_ in aliases:
        if id_ in items and label != id_:
            found.setdefault(label, set()).add(id_)
    return {label: tuple(sorted(ids)) for label, ids in found.items()}


def _page(groups: Sequence[tuple[Item, ...]], limit: int, offset: int) -> Page:
    if len(groups) == 1:
        items = groups[0]
    else:
        items = tuple(sorted({item.id: item for group in groups for item in group}.values(), key=_in_order))
    total = len(items)
    return Page(items if total <= limit and not offset else items[offset : offset + limit], total)
