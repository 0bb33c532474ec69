"""Which nodes, relations and values of an endpoint bear a name, and the items of ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from kbqa.kg import languages
from kbqa.kg.actions import Item, Mention
from kbqa.kg.embedded.vocabulary import Vocabulary
from kbqa.kg.endpoint import lookups
from kbqa.kg.endpoint.mentions import possible_names
from kbqa.kg.endpoint.reader import EndpointReader
from kbqa.kg.endpoint.record import Endpoint, is_iri
from kbqa.kg.endpoint.results import BLANK_IRI, id_of
from kbqa.kg.linking.linker import EntityLinker

MAX_NODES = 1000
"""Maximum nodes for which a name may stand in a look-up."""

_LITERALS_AT_ONCE = 50  # each has two terms, and each term is a pattern of its own
_MAX_BEARERS = 1000  # rows per query of linking


class EndpointNames:
    """The look-ups of `GraphStore` by name and by id."""

    def __init__(self, endpoint: Endpoint, reader: EndpointReader) -> None:
        self._reader, self._tags = reader, languages.ranges(endpoint.languages)

    def entities(self, name: str) -> tuple[str, ...]:
        """See `GraphStore.resolve_entity`."""
        terms = lookups.node_terms(name)
        if terms and self._reader.ids(lookups.occurring(terms)):
            return (name,)
        if not name or name.startswith(BLANK_IRI):
            return ()
        bearers = self._reader.ids(self._reader.naming.bearers(name, MAX_NODES))
        if bearers:
            return bearers
        literals = lookups.values_named(name, self._tags)
        return self._reader.ids(lookups.occurring(literals))

    def relations(self, name: str) -> tuple[str, ...]:
        """See `GraphStore.resolve_relation`."""
        if is_iri(name) and self._are_relations([name]):
            return (name,)
        bearers = self._reader.ids(self._reader.naming.bearers(name, MAX_NODES)) if name else ()
        return self._are_relations([id_ for id_ in bearers if is_iri(id_)])

    def items(self, ids: Sequence[str]) -> Mapping[str, Item]:
        """See `GraphStore.items`."""
        found: dict[str, Item] = {}
        literals = [id_ for id_ in dict.fromkeys(ids) if id_.startswith('"')]
        nodes = [id_ for id_ in dict.fromkeys(ids) if not id_.startswith('"')]
        for some in chain(
            lookups.chunks(nodes, lookups.NODES_AT_ONCE), lookups.chunks(literals, _LITERALS_AT_ONCE)
        ):
            terms = [term for id_ in some for term in lookups.node_terms(id_)]
            if terms:
                labelled = self._reader.naming.labelled(lookups.occurs(terms, as_relation=True))
                found.update((item.id, item) for item in self._reader.items(labelled))
        return {id_: found[id_] for id_ in ids if id_ in found}

    def named(self, names: Sequence[str], *, limit: int) -> Mapping[str, tuple[Item, ...]]:
        """See `GraphStore.named`."""
        asked = dict.fromkeys(name for name in names if name)
        found: dict[str, tuple[Item, ...]] = {name: (item,) for name, item in self.items(list(asked)).items()}
        labels = [name for name in asked if name not in found and not name.startswith(BLANK_IRI)]
        for some in lookups.chunks(labels, lookups.NODES_AT_ONCE // 2):
            bearers = self._bearers(some, limit)
            items = self.items([id_ for ids in bearers.values() for id_ in ids])
            for name, ids in bearers.items():
                if bearing := tuple(items[id_] for id_ in ids if id_ in items):
                    found[name] = bearing
        return found

    def _bearers(self, labels: Sequence[str], limit: int) -> dict[str, list[str]]:
        """The ids of what bears each label, or else of the literals with that text."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        rows = self._reader.rows(self._reader.naming.bearers_among(labels, limit * len(labels)))
        for row in rows:
            found[row["text"]["value"]].append(id_of(row["x"]))
        rest = [label for label in labels if label not in found]
        if len(rows) == limit * len(labels):  # a frequent label has left no room for others
            found.update((label, list(self.entities(label))) for label in rest)
        elif rest:
            texts = [text for label in rest for text in lookups.values_named(label, self._tags)]
            for some in lookups.chunks(texts, 2 * _LITERALS_AT_ONCE):
                for row in self._reader.rows(lookups.occurring(some)):
                    found[row["x"]["value"]].append(id_of(row["x"]))
        return {label: sorted(set(found[label]))[:limit] for label in labels if found[label]}

    def link(self, question: str) -> list[Mention]:
        """The entities that a question names exactly, apart from capitals.

        Runs of up to 6 words are looked up in several capitalisations, longer runs first, at
        most 200 names in total. An endpoint has no index for similar names, for parts of them, nor
        for values. A declared class without instances is taken for an entity.
        """
        names = possible_names(question)
        found: list[tuple[str, str]] = []
        for some in lookups.chunks(names, lookups.NODES_AT_ONCE // 2):
            rows = self._reader.rows(self._reader.naming.bearers_among(some, _MAX_BEARERS))
            found += [(row["text"]["value"], id_of(row["x"])) for row in rows]
        items = self.items([id_ for _, id_ in found])
        named = [(name, items[id_]) for name, id_ in found if id_ in items]
        schema, classes = self._vocabulary(list(items))
        return EntityLinker(named, schema=schema, classes=classes).link(question)

    def _vocabulary(self, ids: Sequence[str]) -> Vocabulary:
        """What of some ids is schema, and which others are classes."""
        found: dict[str, set[str]] = {"property": set(), "declared": set(), "class": set()}
        for some in lookups.chunks(ids, lookups.NODES_AT_ONCE):
            if terms := lookups.subjects(some):
                rows = self._reader.rows(lookups.parts_of_schema(terms))
                for row in rows:
                    found[row["kind"]["value"]].add(id_of(row["x"]))
        declared = found["declared"] & found["class"]
        return Vocabulary(frozenset(found["property"] | declared), frozenset(found["class"] - declared))

    def _are_relations(self, ids: Sequence[str]) -> tuple[str, ...]:
        if not ids:
            return ()
        values = " ".join(f"<{id_}>" for id_ in ids)
        return self._reader.ids(
            f"SELECT DISTINCT ?x WHERE {{ VALUES ?x {{ {values} }} FILTER(EXISTS {{ ?s ?x ?o }}) }}"
        )
