"""What every graph makes of logical forms: which have members, and what their names stand for.

A name in a form is an id of the graph, an exact label, a Freebase id without its namespace
(`m.0abc`), or an id with a well-known prefix (`wd:Q42`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kbqa.errors import LogicalFormError
from kbqa.kg.embedded.names import literal_value as lexical_form
from kbqa.kg.endpoint.record import is_iri
from kbqa.kg.naming import ENTITY_NAMESPACE, relation_iri
from kbqa.kg.sparql.prefixes import PREFIXES
from kbqa.kg.store import GraphStore
from kbqa.logical_forms.algebra import (
    XSD,
    And,
    Ask,
    Class,
    Comparison,
    Count,
    Entity,
    Expression,
    Join,
    Literal,
    Superlative,
    Timed,
    classes,
    conjuncts,
    entities,
    relations,
    renamed,
)
from kbqa.logical_forms.compiler import FREEBASE_NAMESPACE, in_freebase_zone, interval

# A literal in N-Triples.
_LITERAL = re.compile(
    r'"(?:[^"\\]|\\.)*+"(?:@(?P<language>[A-Za-z0-9-]+)|\^\^<(?P<datatype>[^<>"\s]+)>)?', re.DOTALL
)
_RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


def check_members(form: Expression) -> None:
    """Check that a form denotes members that can be listed, in any graph.

    Raises:
        LogicalFormError: a comparison selects from no set, COUNT or ASK is part of the form, or TC's
            relation belongs to no known pair.
    """
    match form:
        case And():
            sets = [one for one in conjuncts(form) if not isinstance(one, Comparison)]
            for one in sets or conjuncts(form):
                check_members(one)
        case Comparison():
            raise LogicalFormError("a comparison selects from a set: write (AND set (gt relation value))")
        case Count():
            raise LogicalFormError("COUNT has no members that the graph holds")
        case Ask():
            raise LogicalFormError("ASK has no members: it is a whole expression")
        case Timed(source, relation, _):
            interval(relation.name)
            check_members(source)
        case Superlative():
            check_members(form.source)
        case Join(_, source) if not isinstance(source, Entity | Literal):
            check_members(source)


def leaves(form: Expression) -> Iterator[Entity | Literal | Class]:
    """The entities, literals and classes in a form, except the values of comparisons."""
    match form:
        case Class():
            yield form
        case Join(_, Entity() | Literal() as leaf):
            yield leaf
        case And(left, right):
            yield from leaves(left)
            yield from leaves(right)
        case Join() | Superlative() | Timed() | Count():
            assert not isinstance(form.source, Entity | Literal)
            yield from leaves(form.source)
        case Ask(source, node):
            yield from leaves(source)
            yield node
        case Comparison():
            pass


def leaf_of(store: GraphStore, name: str) -> Entity | Literal:
    """What a form writes for an entity or a literal, given by id, or for a name."""
    found = _LITERAL.fullmatch(name)
    # In a delimited file, an entity may be called so.
    if found is None or not store.entity_term(name).startswith('"'):
        item = store.item(name)
        return Entity(name if item is None else item.id)
    return Literal(lexical_form(name), found["datatype"] or f"{XSD}string", found["language"])


def with_ids(store: GraphStore, form: Expression) -> Expression:
    """A form with the graph's own spelling of the ids in it; labels and other names are unchanged."""
    items = store.items([*entities(form), *classes(form), *relations(form)])

    def own(name: str) -> str:
        return items[name].id if name in items else name

    return renamed(form, node=own, relation=own)


def resolved_name(resolve: Callable[[str], tuple[str, ...]], name: str) -> tuple[str, ...]:
    """Ids that a name stands for, by a store's `resolve_entity` or `resolve_relation`.

    A literal with that text is meant only if nothing else has the name.
    """
    ids = next((ids for spelling in _spellings(name) if (ids := resolve(spelling))), ())
    return tuple(id_ for id_ in ids if not id_.startswith('"')) or ids


@dataclass
class NameTable:
    """Resolves the names in forms to ids of a graph, each once."""

    store: GraphStore
    _nodes: dict[Entity | Literal | Class, tuple[str, ...]] = field(default_factory=dict)

    def nodes(self, leaf: Entity | Literal | Class) -> tuple[str, ...]:
        """Ids of an entity, class or literal; empty if it is not in the graph."""
        if leaf not in self._nodes:
            if isinstance(leaf, Literal):
                self._nodes[leaf] = self._literals(leaf)
            else:
                name = leaf.id if isinstance(leaf, Entity) else leaf.name
                self._nodes[leaf] = resolved_name(self.store.resolve_entity, name)
        return self._nodes[leaf]

    def relations(self, name: str) -> tuple[str, ...]:
        """Ids of a relation; empty if it is not in the graph."""
        return resolved_name(self.store.resolve_relation, name)

    def relation_path(self, name: str) -> str:
        """A relation as a property path; one that no triple has if it is not in the graph."""
        # The relation for the other end of TC's interval may be missing.
        return self._path(self.relations(name)) or f"<{name if is_iri(name) else relation_iri(name)}>"

    def written_as(self, name: str) -> str | None:
        """As `GraphStore.written_as`, of a relation by name; of several, if all are alike."""
        found = {self.store.written_as(id_) for id_ in self.relations(name)}
        return found.pop() if len(found) == 1 else None

    def value(self, name: str, variable: str) -> str:
        """What is compared at a variable to which a relation leads; see `FormVocabulary`."""
        datatype = self.written_as(name)
        if datatype is None:
            return variable
        return f'<{datatype}>(REPLACE(STR({variable}), "^{ENTITY_NAMESPACE}", ""))'

    def type_path(self) -> str:
        """The relations that lead to classes, as a property path."""
        known = self.store.items(self.store.type_relations).values()
        return self._path(tuple(dict.fromkeys(item.id for item in known)) or (_RDF_TYPE,))

    def written(self, id_: str) -> str:
        """An id as written in forms: without Freebase's namespace."""
        return id_.removeprefix(FREEBASE_NAMESPACE)

    def _path(self, ids: Sequence[str]) -> str:
        terms = [self.store.relation_term(id_) for id_ in ids]
        return terms[0] if len(terms) == 1 else f"({'|'.join(terms)})" if terms else ""

    def _literals(self, literal: Literal) -> tuple[str, ...]:
        """The literal itself, else with the time zone of Freebase's dates, else all with its lexical form."""
        for reading in (literal, in_freebase_zone(literal)):
            typed = {"datatype": reading.datatype}
            if reading.language is not None:
                typed = {"xml:lang": reading.language}
            id_ = self.store.id_of({"type": "literal", "value": reading.lexical, **typed})
            if self.store.item(id_) is not None:
                return (id_,)
        return self.store.resolve_entity(literal.lexical)


def _spellings(name: str) -> Iterator[str]:
    """A name, followed by the ids that it may abbreviate."""
    yield name
    prefix, colon, local = name.partition(":")
    if colon and prefix in PREFIXES:
        yield PREFIXES[prefix] + local
    if "." in name and " " not in name:
        yield FREEBASE_NAMESPACE + name
