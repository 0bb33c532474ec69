"""A graph of IRIs seen by short ids: the one place at which these are mapped, for every kind of store.

Arguments may be short ids, prefixed names or IRIs, and results have short ids (`namespaces`). A relation is
also accepted by its local name if no other relation has it, such as `children` for `people.person.children`.
In Wikidata, the forms of a property bear the names of the property's node. Nodes without a label are sorted
by their IRIs, as in the store below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from kbqa.errors import AmbiguousNameError, GraphUnavailableError, QueryError, QuerySyntaxError
from kbqa.kg.actions import Item, Mention
from kbqa.kg.namespaces import Namespaces, local_name
from kbqa.kg.sparql.dialect import with_iris
from kbqa.kg.sparql.guard import QueryResult, ResultFormat, check_query
from kbqa.kg.store import Attribute, Bond, GraphStore, HubLimits, Page, PathStep, Survey, Walk
from kbqa.logical_forms.algebra import Ask, Entity, Expression, Literal, renamed

_KEPT = 1 << 16  # short ids that are kept
_SHOWN = 5  # candidates that an error names
# A word of a question that may be an id.
_WORD = re.compile(r"[^\s,;!?\"'()]*[^\s,;!?\"'().:]")


class NamespacedStore:
    """A `GraphStore` by short ids over one by IRIs.

    Args:
        store: its ids are IRIs, `_:b` and literals in N-Triples form.
    """

    def __init__(self, store: GraphStore, namespaces: Namespaces) -> None:
        self._store, self._namespaces = store, namespaces
        self._short = short = lru_cache(_KEPT)(namespaces.short)
        # No bound method: it would form a reference cycle and keep an unused graph open until collected.
        self._shown: Callable[[Item], Item] = lru_cache(_KEPT)(partial(_shown, short))
        self._by_local_name: Mapping[str, Sequence[str]] | None = None

    @property
    def version(self) -> str:
        return self._store.version

    @property
    def triples(self) -> int | None:
        return self._store.triples

    @property
    def entities(self) -> int | None:
        return self._store.entities

    @property
    def is_remote(self) -> bool:
        return self._store.is_remote

    @property
    def hub_limits(self) -> HubLimits:
        return self._store.hub_limits

    @property
    def query_deadline_s(self) -> float | None:
        return self._store.query_deadline_s

    # Names

    def iris(self, ids: Iterable[str]) -> list[str]:
        """The ids of the store below, each once; texts that are no ids are unchanged."""
        return list(dict.fromkeys(map(self._namespaces.iri, ids)))

    def resolve_entity(self, name: str) -> tuple[str, ...]:
        node = self._namespaces.property_node(self._namespaces.iri(name))
        spellings = dict.fromkeys((*self.iris([name]), name, *filter(None, [node])))
        found = next((ids for one in spellings if (ids := self._store.resolve_entity(one))), ())
        return tuple(map(self._short, found))

    def resolve_relation(self, name: str) -> tuple[str, ...]:
        """Ids that `name` stands for: as an id, a label, the label of a Wikidata property, a local name.

        Raises:
            AmbiguousNameError: it is the local name of several relations.
        """
        for spelling in dict.fromkeys((*self.iris([name]), name)):
            if found := self._store.resolve_relation(spelling):
                return tuple(map(self._short, found))
        if found := self._property_named(name):
            return found
        if not name or local_name(name) != name:
            return ()
        candidates = self._local_names().get(name, ())
        if len(candidates) > 1:
            told = ", ".join(candidates[:_SHOWN]) + (" …" if len(candidates) > _SHOWN else "")
            raise AmbiguousNameError(f'"{name}" stands for {len(candidates)} relations: write {told}')
        return tuple(candidates)

    def item(self, id_: str) -> Item | None:
        return self.items([id_]).get(id_)

    def items(self, ids: Sequence[str]) -> Mapping[str, Item]:
        iris = {id_: self._namespaces.iri(id_) for id_ in ids}
        found = self._store.items(list(dict.fromkeys(iris.values())))
        shown = dict(zip(found, self._named(list(found.values())), strict=True))
        return {id_: shown[iri] for id_, iri in iris.items() if iri in shown}

    def named(self, names: Sequence[str], *, limit: int) -> Mapping[str, tuple[Item, ...]]:
        spellings = {name: list(dict.fromkeys((*self.iris([name]), name))) for name in names if name}
        asked = dict.fromkeys(one for some in spellings.values() for one in some)
        known = self._store.named(list(asked), limit=limit)
        found = {
            name: next((known[one] for one in some if one in known), ()) for name, some in spellings.items()
        }
        return {name: tuple(self._named(list(items))) for name, items in found.items() if items}

    def link(self, question: str) -> list[Mention]:
        """Find the entities that a question names, also by their ids."""
        words = {word: iri for word in _WORD.finditer(question) if (iri := self._iri_of(word[0])) is not None}
        known = self._store.items(list(dict.fromkeys(words.values()))) if words else {}
        found: list[Mention] = []
        for word, iri in words.items():
            if iri in known:
                item = self._shown(known[iri])
                found.append(Mention(item.id, item.label, *word.span()))
        for one in found:  # an id says nothing else
            question = question[: one.start] + " " * (one.end - one.start) + question[one.end :]
        for one in self._store.link(question):
            item = self._shown(Item(one.id, one.label))
            found.append(replace(one, id=item.id, label=item.label))
        return sorted(found, key=lambda one: one.start)

    def complete(self, text: str, *, limit: int) -> list[Item]:
        return [self._shown(item) for item in self._store.complete(text, limit=limit)]

    # Look-ups

    def tail_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        return self._relations_page(
            self._store.tail_relations(self.iris(entities), limit=limit, offset=offset)
        )

    def head_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        return self._relations_page(
            self._store.head_relations(self.iris(entities), limit=limit, offset=offset)
        )

    def tail_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        return self._page(
            self._store.tail_entities(self.iris(entities), self.iris(relations), limit=limit, offset=offset)
        )

    def head_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        return self._page(
            self._store.head_entities(self.iris(entities), self.iris(relations), limit=limit, offset=offset)
        )

    def adjacent(self, nodes: Sequence[str]) -> frozenset[str]:
        return frozenset(map(self._short, self._store.adjacent(self.iris(nodes))))

    def follow(
        self,
        entities: Sequence[str],
        steps: Sequence[PathStep],
        *,
        limit: int,
        offset: int = 0,
        returning: bool = False,
    ) -> Walk:
        below = [PathStep(tuple(self.iris(step.relations)), step.inverse) for step in steps]
        walk = self._store.follow(self.iris(entities), below, limit=limit, offset=offset, returning=returning)
        return replace(
            walk,
            ends=self._page(walk.ends),
            vias=tuple(tuple(map(self._short, via)) for via in walk.vias),
            out=self._named(walk.out),
            into=self._named(walk.into),
        )

    def members(self, form: Expression, *, limit: int, offset: int = 0, returning: bool = False) -> Page:
        return self._page(
            self._store.members(self._below(form), limit=limit, offset=offset, returning=returning)
        )

    def contains(self, form: Expression, node: Entity | Literal, *, returning: bool = False) -> bool:
        below = self._below(Ask(form, node))
        assert isinstance(below, Ask)
        return self._store.contains(below.source, below.node, returning=returning)

    def survey(
        self, of: Expression | Sequence[str], topics: Sequence[str] = (), *, returning: bool = False
    ) -> Survey:
        iris = {topic: self._entity_below(topic) for topic in topics}
        found = self._store.survey(
            self.iris(of) if isinstance(of, Sequence) else self._below(of),
            list(dict.fromkeys(iris.values())),
            returning=returning,
        )
        return Survey(
            self._named(found.out),
            self._named(found.into),
            tuple((self._shown(item), count) for item, count in found.classes),
            tuple(Attribute(self._named(one.path), *one[1:]) for one in found.attributes),
            {topic: tuple(map(self._bond, found.bonds.get(iri, ()))) for topic, iri in iris.items()},
        )

    def holders(self, relation: str, *, inverse: bool = False, limit: int) -> Sequence[str]:
        below = self._store.holders(self._relation_below(relation), inverse=inverse, limit=limit)
        return [self._short(node) for node in below]

    def written_as(self, relation: str) -> str | None:
        return self._store.written_as(self._relation_below(relation))

    def relations(self) -> Sequence[Item]:
        return self._named(self._store.relations())

    @property
    def type_relations(self) -> Sequence[str]:
        return [self._short(relation) for relation in self._store.type_relations]

    def types(self) -> Sequence[Item]:
        return [self._shown(item) for item in self._store.types()]

    def subgraph(self, graph: str) -> GraphStore | None:
        found = self._store.subgraph(graph)
        return None if found is None else NamespacedStore(found, self._namespaces)

    # Terms and queries

    def entity_term(self, id_: str) -> str:
        return self._store.entity_term(self._namespaces.iri(id_))

    def relation_term(self, id_: str) -> str:
        return self._store.relation_term(self._namespaces.iri(id_))

    def id_of(self, term: Mapping[str, str]) -> str:
        return self._short(self._store.id_of(term))

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        rewriting = with_iris(check_query(text), self._namespaces)
        if rewriting is None:
            return self._store.query(text, result=result, deadline_s=deadline_s)
        try:
            return self._store.query(rewriting.text, result=result, deadline_s=deadline_s)
        except QuerySyntaxError as error:
            raise QuerySyntaxError(rewriting.in_source(str(error))) from None

    def _below(self, form: Expression) -> Expression:
        """A form with the IRIs of its names; a label is left to the store below."""
        return renamed(form, node=self._entity_below, relation=self._relation_below)

    def _entity_below(self, name: str) -> str:
        iri = self._namespaces.iri(name)
        return iri if iri == name or self._store.resolve_entity(iri) else name

    def _relation_below(self, name: str) -> str:
        ids = self.iris(self.resolve_relation(name))
        return ids[0] if len(ids) == 1 else name

    def _iri_of(self, word: str) -> str | None:
        """The IRI of a word that is written as an id or as an IRI."""
        iri = self._namespaces.iri(word)
        return iri if iri != word or self._short(iri) != word else None

    def _property_named(self, name: str) -> tuple[str, ...]:
        """The direct form of the Wikidata properties with a label, or the forms that the graph has."""
        found: list[str] = []
        for node in self._store.resolve_entity(name) if self._namespaces.has_properties else ():
            forms = self._namespaces.property_forms(node)
            known = [form for form in forms if self._store.resolve_relation(form)]
            found += known[:1] if known[:1] == list(forms[:1]) else known
        return tuple(map(self._short, found))

    def _local_names(self) -> Mapping[str, Sequence[str]]:
        """Local name → relations; empty while an endpoint cannot list its relations."""
        if self._by_local_name is None:
            try:
                relations = self._store.relations()
            except (QueryError, GraphUnavailableError):
                return {}
            found: dict[str, list[str]] = {}
            for item in relations:
                id_ = self._short(item.id)
                found.setdefault(local_name(id_), []).append(id_)
            self._by_local_name = {name: sorted(ids) for name, ids in found.items()}
        return self._by_local_name

    # Items

    def _named(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Items of which some may be relations: a nameless form of a property has the property's label."""
        nodes = {
            item.id: node
            for item in items
            if item.label == item.id and (node := self._namespaces.property_node(item.id))
        }
        named = self._store.items(list(dict.fromkeys(nodes.values()))) if nodes else {}
        return tuple(
            Item(self._short(item.id), found.label)
            if (found := named.get(nodes.get(item.id, ""))) is not None and found.label != found.id
            else self._shown(item)
            for item in items
        )

    def _page(self, page: Page) -> Page:
        return page._replace(items=tuple(map(self._shown, page.items)))

    def _relations_page(self, page: Page) -> Page:
        return page._replace(items=self._named(page.items))

    def _bond(self, bond: Bond) -> Bond:
        relations = self._named([item for item, _ in bond.path])
        return bond._replace(path=tuple(zip(relations, (way for _, way in bond.path), strict=True)))


def _shown(short: Callable[[str], str], item: Item) -> Item:
    id_ = short(item.id)
    label = id_ if item.label == item.id else item.label
    return Item(id_, label) if type(item) is Item else replace(item, id=id_, label=label)


def with_namespaces(store: GraphStore, namespaces: Namespaces) -> GraphStore:
    """The store by short ids; the store itself if no namespaces are declared."""
    return NamespacedStore(store, namespaces) if namespaces else store


def ids_below(store: GraphStore, name: str) -> list[str]:
    """What a name stands for, by the ids of the store that `with_namespaces` was given."""
    found = store.resolve_entity(name)
    return store.iris(found) if isinstance(store, NamespacedStore) else list(found)
