"""A graph that changed since it was written."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kbqa.kg.actions import Item
from kbqa.kg.embedded.overlay import Difference, overlay
from kbqa.kg.embedded.oxigraph import STORE, OxigraphStore
from kbqa.kg.embedded.vocabulary import NAMING, Vocabulary, is_about_schema, texts, vocabulary
from kbqa.kg.linking.linker import Difference as NameDifference
from kbqa.kg.linking.linker import EntityLinker
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.subgraphs import Subgraph

if TYPE_CHECKING:
    from kbqa.kg.embedded.sides import Side


class ChangedStore(OxigraphStore):
    """A `GraphStore` with the triples of another one, its base, and a difference.

    Args:
        directory: of the version; only its store is read, by query processes (`sparql.copies`).
        base: an opened version without changes, which is shared.

    Raises:
        NotAnOverlayError: the graph has to be written anew.
    """

    _numbered_by = np.float64

    def __init__(
        self,
        directory: Path,
        base: OxigraphStore,
        difference: Difference,
        *,
        version: str,
        queries: QueryPool,
    ) -> None:
        self.base, self.difference = base, difference
        self._directory, self._version, self._named = directory / STORE, version, base.of_names
        self._queries, self._linker, self._linker_lock = queries, None, threading.Lock()
        self.rules = base.rules
        self._over = over = overlay(base, self.rules, base.of_names, difference)
        self._nodes, self._relation_terms = over.nodes, over.relations  # type: ignore[assignment]
        self._relations = over.relation_items  # type: ignore[assignment]
        self.sides = over.out, over.into  # type: ignore[assignment]
        self._out: Side
        self._in: Side
        self._out, self._in = self.sides
        self._types = over.types  # type: ignore[assignment]
        self._times = base._times
        self._num_triples, self._num_entities = over.triples, over.entities

    @property
    def lost_relations(self) -> list[str]:
        """The ids of the relations of the base that no fact has any more."""
        return [item.id for item in self.base.relations() if self._relation_terms.number(item.id) is None]

    def links(self) -> Iterable[tuple[int, Item]]:
        return self._over.relation_items.items()  # type: ignore[return-value]

    def relations(self) -> list[Item]:
        return list(self._over.relation_items.values())

    def subgraph(self, graph: str) -> Subgraph | None:
        return None

    @cached_property
    def vocabulary(self) -> Vocabulary:
        before = self.base.vocabulary
        kinds = {item.id for item in self.base.types()}
        decisive = any(
            is_about_schema(relation)
            or self.rules.states_type(relation)
            or any(id_ in before.schema or id_ in kinds for id_ in (head, tail))
            for triples in self.difference
            for head, relation, tail in triples
        )
        if decisive:
            return vocabulary(self, named=self._named)
        if self._named:
            return before
        old, new = ({item.id for item in store.relations()} for store in (self.base, self))
        return before._replace(schema=before.schema - (old - new) | new)

    @cached_property
    def naming(self) -> frozenset[str]:
        changed = any(NAMING.fullmatch(relation) for triples in self.difference for _, relation, _ in triples)
        return super().naming if changed else self.base.naming

    def _make_linker(self) -> EntityLinker:
        before = self.base.linker()
        schema, classes = self.vocabulary
        old = self.base.vocabulary
        judged = set(schema ^ old.schema)
        names = NameDifference(
            *([(name, item) for id_ in sorted(self._over.touched) for name, item in _names(store, id_)]
              for store in (self.base, self))
        )  # fmt: skip
        if self._named:
            values = NameDifference([], [])
        elif self.naming != self.base.naming:
            return self._linker_in_memory()
        else:
            literals = self._literals()
            values = NameDifference(
                *(
                    list(texts(store, store.links_named(*store.naming), store.numbers(literals).tolist()))
                    for store in (self.base, self)
                )
            )
        rejudged = [name for id_ in judged for store in (self.base, self) for name, _ in _names(store, id_)]
        return before.changed(names, values, classes=classes, schema=schema, judged=rejudged)

    def _literals(self) -> set[str]:
        """The ids of the literals of which what they stand for may have changed."""
        met = {id_ for triples in self.difference for head, _, tail in triples for id_ in (head, tail)}
        found = set()
        for id_ in met | self._over.touched:
            if id_.startswith('"'):
                found.add(id_)
                continue
            for store in (self.base, self):
                for node in store.numbers([id_]).tolist():
                    for link in store.links_named(*store.naming):
                        found.update(map(store.id_at, store.side(inverse=False).neighbours(node, link)))
        # Where no entity bears a name any more, a literal may stand for it.
        for id_ in self._over.touched:
            for name, _ in _names(self.base, id_):
                found.update(one for one in self.base.terms[0].labelled_by(name) if one.startswith('"'))
        return {id_ for id_ in found if id_.startswith('"')}


def _names(store: OxigraphStore, id_: str) -> list[tuple[str, Item]]:
    """All names of an entity, as a linker takes them; none of a literal, or of what is no node."""
    terms = store.terms[0]
    number = terms.number(id_)
    if number is None or (id_.startswith('"') and not store.of_names):
        return []
    item = terms.item(number)
    own = [(item.id, item)] if item.label == item.id else []
    return own + [(name, item) for name in terms.names_of(number)]
