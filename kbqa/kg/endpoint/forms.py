"""The members of logical forms at an endpoint, and what they can be continued by, as SPARQL queries.

A set of members stays on the server: every query contains the pattern of its form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kbqa.kg.actions import Item
from kbqa.kg.endpoint.lookups import item_of, node_terms, places, union
from kbqa.kg.endpoint.reader import EndpointReader
from kbqa.kg.endpoint.record import TYPE_PROPERTIES
from kbqa.kg.endpoint.results import Binding, id_of
from kbqa.kg.forms import NameTable, check_members, leaves
from kbqa.kg.naming import entity_iri
from kbqa.kg.store import MAX_SURROUNDED, Attribute, Bond, GraphStore, Survey
from kbqa.kg.values import VALUE_TYPES, Value, most_frequent, value_of, written_as
from kbqa.logical_forms.algebra import XSD, Class, Entity, Expression, Literal, entities
from kbqa.logical_forms.compiler import Distinct, FormVocabulary, away_from, literal_term, to_sparql

_OUT, _IN = "out", "in"
_ENDS = "least", "greatest"
_TEXT = f"{XSD}string"
_TYPE = "BIND(STR(DATATYPE(?value)) AS ?type)"


class _Values(NamedTuple):
    """The values of one datatype at the end of a path.

    Attributes:
        members: number of nodes from which it leads to one.
        rows: number of ways there.
    """

    least: Value
    greatest: Value
    rows: int
    members: int


@dataclass
class FormQueries:
    """The queries about forms at one endpoint; for one look-up, since names are resolved once.

    Args:
        store: resolves the names in forms.
        labels: properties that hold names.
        reader: of the endpoint; raises like the store's other look-ups.
    """

    store: GraphStore
    labels: Sequence[str]
    reader: EndpointReader
    _names: NameTable = field(init=False)

    def __post_init__(self) -> None:
        self._names = NameTable(self.store)

    def members(
        self, form: Expression, *, returning: bool, answer: str = "x", apart: Iterable[str] = ()
    ) -> str:
        """A query for the members, as the variable `answer`.

        Args:
            apart: entities that the form is taken to name, too.

        Raises:
            LogicalFormError: the members cannot be listed, or the form cannot be written in SPARQL.
        """
        check_members(form)
        joined = set(leaves(form))
        vocabulary = FormVocabulary(
            entity=lambda name: self._terms(Entity(name)),
            relation=self._names.relation_path,
            ontology_class=lambda name: self._terms(Class(name)),
            type_predicate=self._names.type_path(),
            literal=lambda value: self._terms(value) if value in joined else literal_term(value),
            value=self._names.value,
        )
        distinct = Distinct.NONE if returning else Distinct.ENTITIES
        return to_sparql(form, vocabulary, distinct=distinct, answer=answer, apart=apart)

    def holds(self, form: Expression, node: Entity | Literal, *, returning: bool) -> str:
        """A query that finds something if a node is a member of a form.

        Raises:
            LogicalFormError: as `members`.
        """
        terms = self._terms(node)
        members = self.members(form, returning=returning)
        return f"SELECT ?x WHERE {{ VALUES ?x {{ {' '.join(terms)} }} {{ {members} }} }} LIMIT 1"

    def survey(self, form: Expression, topics: Sequence[str], *, returning: bool) -> Survey:
        """Survey the members of a form, as `GraphStore.survey` does."""
        named = () if returning else entities(form)
        members = self._some_of(form, returning=returning)
        bonds = {
            topic: tuple(self._bonds(form, topic, () if returning else (*named, topic))) for topic in topics
        }
        return self._survey(members, bonds)

    def survey_nodes(self, ids: Sequence[str]) -> Survey:
        """Survey entities that a longer form will name."""
        terms = [term for id_ in ids for term in node_terms(id_)]
        values = f"VALUES ?member {{ {' '.join(terms)} }}"
        return self._survey(values, {}) if terms else Survey()

    def _survey(self, members: str, bonds: Mapping[str, tuple[Bond, ...]]) -> Survey:
        sides = {
            way: f"{members} {_edge('?member', '?x', '?other', inverse=inverse)}"
            for way, inverse in ((_OUT, False), (_IN, True))
        }
        found: dict[str, list[Item]] = {_OUT: [], _IN: []}
        for row in self.reader.rows(self.reader.naming.around(sides, self.reader.max_rows)):
            found[row["way"]["value"]].append(item_of(row))
        out, into = (
            tuple(sorted((item for item in found[way] if item.id not in self.labels), key=_by_label))
            for way in (_OUT, _IN)
        )
        if not out and not into:
            return Survey(bonds=bonds)
        return Survey(out, into, self._classes(members), tuple(self._attributes(members, out)), bonds)

    def _some_of(self, form: Expression, *, returning: bool, apart: Iterable[str] = ()) -> str:
        """A pattern for the members that are surveyed, as ?member."""
        query = self.members(form, returning=returning, answer="member", apart=apart)
        return f"{{ {query} LIMIT {MAX_SURROUNDED} }}"

    def _classes(self, members: str) -> tuple[tuple[Item, int], ...]:
        pattern = f"{members} ?member {self._names.type_path()} ?x"
        rows = self.reader.rows(
            f"SELECT ?x (COUNT(DISTINCT ?member) AS ?n) WHERE {{ {pattern} }} GROUP BY ?x"
        )
        counts = {id_of(row["x"]): int(row["n"]["value"]) for row in rows if "x" in row}
        items = self._items(counts)
        ordered = sorted(counts, key=lambda id_: (-counts[id_], _by_label(items[id_])))
        return tuple((items[id_], counts[id_]) for id_ in ordered)

    def _attributes(self, members: str, out: Sequence[Item]) -> Iterator[Attribute]:
        """The relations to numbers and dates, directly or through nodes that are parts of others.

        A part has no name, or one triple alone leads to it.
        """
        found = self._values(members, "?member", "p")
        further = [item.id for item in out if (item.id,) not in found and item.id not in TYPE_PROPERTIES]
        if further:
            properties = " ".join(f"<{label}>" for label in self.labels)
            named = f"{members} ?member ?p ?middle . ?middle ?name ?text VALUES ?name {{ {properties} }} "
            named += "?other ?link ?middle FILTER(?other != ?member || ?link != ?p)"
            ids = {id_of(row["p"]) for row in self.reader.rows(f"SELECT DISTINCT ?p WHERE {{ {named} }}")}
            further = [id_ for id_ in further if id_ not in ids]
        if further:
            relations = " ".join(f"<{id_}>" for id_ in further)
            through = f"{members} VALUES ?p {{ {relations} }} ?member ?p ?middle ."
            found |= self._values(through, "?middle", "p", "q")
        items = {item.id: item for item in out}
        items |= self._items(id_ for path in found for id_ in path if id_ not in items)
        by_path = {tuple(items[id_] for id_ in path): values for path, values in found.items()}
        for path in sorted(by_path, key=lambda path: [_by_label(item) for item in path]):
            yield _attribute(path, by_path[path])

    def _values(self, there: str, node: str, *variables: str) -> dict[tuple[str, ...], list[_Values]]:
        """The numbers and dates at the ends of paths, by relations and datatypes.

        Args:
            there: binds the node from which the last relation leads on.
            variables: the relations of the path.
        """
        datatypes = ", ".join(f'"{datatype}"' for datatype in sorted({*VALUE_TYPES, _TEXT}))
        typed = f"{there} {node} ?{variables[-1]} ?value FILTER(ISLITERAL(?value)) {_TYPE} "
        typed += f"FILTER(?type IN ({datatypes}))"
        found: dict[tuple[str, ...], list[_Values]] = {}
        for path, row in self._extremes(typed, variables):
            ends = [id_of(row[name]) for name in _ENDS if name in row]
            if row["type"]["value"] == _TEXT and written_as(ends) is not None:
                read = self._written(there, node, dict(zip(variables, path, strict=True)))
                found.setdefault(path, []).extend(read)
            elif (values := _values_of(row)) is not None:
                found.setdefault(path, []).append(values)
        return {path: values for path, values in found.items() if values}

    def _written(self, there: str, node: str, path: Mapping[str, str]) -> list[_Values]:
        """The texts at the end of one path of relations, by variable, if all are numbers or all dates."""
        *_, (variable, last) = path.items()
        converted = self._names.value(last, "?text")
        if converted == "?text":
            return []
        relations = " ".join(f"VALUES ?{name} {{ <{relation}> }}" for name, relation in path.items())
        texts = f"{relations} {there} {node} ?{variable} ?text FILTER({converted} = {converted})"
        rows = self._extremes(f"{texts} BIND({converted} AS ?value) {_TYPE}", tuple(path))
        return [values for _, row in rows if (values := _values_of(row)) is not None]

    def _extremes(self, pattern: str, variables: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Binding]]:
        """Relations, and the extremes and numbers of what a pattern binds to ?value, by their ?type."""
        path = " ".join(f"?{variable}" for variable in variables)
        rows = self.reader.rows(
            f"SELECT {path} ?type (COUNT(*) AS ?n) (COUNT(DISTINCT ?member) AS ?members) "
            f"(MIN(?value) AS ?least) (MAX(?value) AS ?greatest) WHERE {{ {pattern} }} GROUP BY {path} ?type"
        )
        for row in rows:
            if all(name in row for name in (*variables, "type")):
                yield tuple(id_of(row[name]) for name in variables), row

    def _bonds(self, form: Expression, topic: str, apart: Sequence[str]) -> Iterator[Bond]:
        """Paths of one or two relations from the members to an entity, which no join leads to on the way."""
        if not self._names.nodes(Entity(topic)):
            return
        members = self._some_of(form, returning=not apart, apart=apart)
        away = {node: " ".join(away_from(node, self._terms_of(apart))) for node in ("?member", "?middle")}
        names = f"({', '.join(f'<{label}>' for label in self.labels)})"
        passed_over = f"({', '.join(f'<{id_}>' for id_ in sorted({*TYPE_PROPERTIES, *self.labels}))})"
        branches = []
        for before, there in places("?there", self._terms(Entity(topic))):
            start = f"{before}{members}"
            for last in (False, True):
                edge = _edge("?member", "?p", there, inverse=last)
                way = f'BIND("{last:d}" AS ?way)'
                branches.append(f"{start} {edge} {away['?member']} FILTER(?p NOT IN {names}) {way}")
                for first in (False, True):
                    edges = f"{_edge('?member', '?p', '?middle', inverse=first)} . "
                    edges += _edge("?middle", "?q", there, inverse=last)
                    tests = f"{away['?member']} {away['?middle']} "
                    tests += f"FILTER(?p NOT IN {passed_over} && ?q NOT IN {names})"
                    branches.append(f'{start} {edges} {tests} BIND("{first:d}{last:d}" AS ?way)')
        rows = self.reader.rows(
            f"SELECT ?way ?p ?q (COUNT(DISTINCT ?member) AS ?n) WHERE {{ {union(branches)} }} "
            "GROUP BY ?way ?p ?q"
        )
        items = self._items(id_of(row[name]) for row in rows for name in ("p", "q") if name in row)
        bonds = []
        for row in rows:
            ways = [way == "1" for way in row["way"]["value"]]
            links = [items[id_of(row[name])] for name in ("p", "q") if name in row]
            bonds.append(Bond(tuple(zip(links, ways, strict=True)), int(row["n"]["value"])))
        yield from sorted(bonds, key=_shorter_first)

    def _terms(self, leaf: Entity | Literal | Class) -> tuple[str, ...]:
        """What a leaf stands for, as terms; one that the graph does not have if it stands for nothing."""
        terms = tuple(term for id_ in self._names.nodes(leaf) for term in node_terms(id_))
        if terms:
            return terms
        if isinstance(leaf, Literal):
            return (literal_term(leaf),)
        return (f"<{entity_iri(leaf.id if isinstance(leaf, Entity) else leaf.name)}>",)

    def _terms_of(self, names: Iterable[str]) -> list[str]:
        return [term for name in names for term in self._terms(Entity(name))]

    def _items(self, ids: Iterable[str]) -> dict[str, Item]:
        wanted = list(dict.fromkeys(ids))
        found = self.store.items(wanted) if wanted else {}
        return {id_: found.get(id_) or Item(id_, id_) for id_ in wanted}


def _values_of(row: Binding) -> _Values | None:
    least, greatest = (value_of(id_of(row[name])) if name in row else None for name in _ENDS)
    if least is None or greatest is None:
        return None
    return _Values(least, greatest, int(row["n"]["value"]), int(row["members"]["value"]))


def _attribute(path: tuple[Item, ...], found: Sequence[_Values]) -> Attribute:
    datatype = most_frequent((values.least.datatype, values.rows) for values in found)
    one = next(values.least for values in found if values.least.datatype == datatype)
    kept = [values for values in found if values.least.comparable(one)]
    least = min((values.least for values in kept), key=lambda value: value.key)
    greatest = max((values.greatest for values in kept), key=lambda value: value.key)
    # A member may have values of several datatypes.
    return Attribute(path, datatype, least, greatest, max(values.members for values in kept))


def _edge(here: str, relation: str, there: str, *, inverse: bool) -> str:
    return f"{there} {relation} {here}" if inverse else f"{here} {relation} {there}"


def _by_label(item: Item) -> tuple[str, str]:
    return item.label, item.id


def _shorter_first(bond: Bond) -> tuple[int, list[tuple[tuple[str, str], bool]]]:
    return len(bond.path), [(_by_label(item), inverse) for item, inverse in bond.path]
