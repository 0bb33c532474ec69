"""What of a graph is schema, which only serves to describe entities, and which literals may be topics.

A part of the schema is

- a relation, or what the graph declares as a property or class in RDF Schema or OWL. In an ontology
  whose classes have no instances, the classes are what it is about, and no part of the schema;
- a class without facts of its own: the graph only names and describes it in RDF Schema, OWL or SKOS,
  and lists its instances. In a delimited file, it has no type either.

Any other class is also an ordinary entity, such as the piano in Wikidata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kbqa.kg.actions import Item
from kbqa.kg.embedded.names import LABEL_RELATIONS, SKOS_LABELS, TYPE_RELATIONS
from kbqa.kg.linking.fuzzy_names import MAX_MEANINGS

if TYPE_CHECKING:
    from kbqa.kg.embedded.adjacency import Adjacency

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_OWL = "http://www.w3.org/2002/07/owl#"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_LANGUAGES = (_RDF, _RDFS, _OWL, _SKOS)  # in which vocabularies are described
# What classes and properties are declared to be.
CLASS_KINDS = (f"{_RDFS}Class", f"{_RDFS}Datatype", f"{_OWL}Class", f"{_OWL}DeprecatedClass")
PROPERTY_KINDS = (
    f"{_RDF}Property",
    *(
        f"{_OWL}{kind}Property"
        for kind in (
            *("Annotation", "Asymmetric", "Datatype", "Deprecated", "Functional", "InverseFunctional"),
            *("Irreflexive", "Object", "Ontology", "Reflexive", "Symmetric", "Transitive"),
        )
    ),
    "http://wikiba.se/ontology#Property",
)
# Relations of the schema: those between classes, those of properties, those from properties to classes.
_AMONG_CLASSES = (f"{_RDFS}subClassOf",)
_AMONG_PROPERTIES = (f"{_RDFS}subPropertyOf",)
_TO_CLASSES = (f"{_RDFS}domain", f"{_RDFS}range")

NAMING = re.compile(r".*[/#:](?:name|title|label|id|identifier)", re.IGNORECASE | re.DOTALL)

# A longer literal is a description, not a name.
_MAX_CHARS, _MAX_WORDS = 60, 6


class Vocabulary(NamedTuple):
    """Ids of the parts of a schema, and of the classes that are also ordinary entities."""

    schema: frozenset[str]
    classes: frozenset[str]


def vocabulary(index: Adjacency, *, named: bool) -> Vocabulary:
    """The schema of a graph.

    Args:
        named: whether ids are names from a delimited file; a relation and an entity may then share one.
    """
    outward, inward = index.sides
    types = index.type_links
    among_classes = index.links_named(*_AMONG_CLASSES)
    among_properties = index.links_named(*_AMONG_PROPERTIES)
    to_classes = index.links_named(*_TO_CLASSES)

    def instances(*kinds: str) -> set[int]:
        found = index.numbers(kinds).tolist()
        return {node for kind in found for link in types for node in inward.neighbours(kind, link)}

    properties = instances(*PROPERTY_KINDS)
    properties.update(outward.nodes_with([*among_properties, *to_classes]).tolist())
    properties.update(inward.nodes_with(among_properties).tolist())
    declared = instances(*CLASS_KINDS)
    declared.update(outward.nodes_with(among_classes).tolist())
    declared.update(inward.nodes_with([*among_classes, *to_classes]).tolist())
    used = {node for node in index.type_numbers() if not index.id_at(node).startswith(_LANGUAGES)}
    if declared.isdisjoint(used):
        declared = set()

    describing = {*types, *index.links_named(*LABEL_RELATIONS)}
    describing.update(link for link, relation in index.links() if relation.id.startswith(_LANGUAGES))
    # In a delimited file, `is a` also says that a cat is an animal; the cat is then no mere class.
    said = describing.difference(types) if named else describing
    pure = {
        node
        for node in used
        if said.issuperset(outward.relations_of(node)) and describing.issuperset(inward.relations_of(node))
    }
    schema = {index.id_at(node) for node in properties | declared | pure}
    if not named:
        schema.update(relation.id for relation in index.relations())
    return Vocabulary(frozenset(schema), frozenset(index.id_at(node) for node in used - declared - pure))


def is_about_schema(relation: str) -> bool:
    """Whether facts with a relation may decide what is schema: they declare, and do not only name."""
    names = relation in LABEL_RELATIONS or relation in SKOS_LABELS
    return relation in TYPE_RELATIONS or (relation.startswith(_LANGUAGES) and not names)


def texts(
    index: Adjacency, naming: Iterable[int], nodes: Iterable[int] | None = None
) -> Iterator[tuple[str, Item]]:
    """Short literals without a datatype, of which a question may name one, with what they stand for.

    Args:
        naming, nodes: as in `literals`.
    """
    return ((index.label_at(node), index.item_at(bearer)) for node, bearer in literals(index, naming, nodes))


def literals(
    index: Adjacency, naming: Iterable[int], nodes: Iterable[int] | None = None
) -> Iterator[tuple[int, int]]:
    """The numbers of short literals without a datatype, with those of what they stand for.

    That is the literal itself, but the entities that have it as a name or identifier, if these are few.

    Args:
        naming: `naming_relations` of the graph.
        nodes: the literals to look at; None for all.
    """
    outward, inward = index.sides
    naming = set(naming)
    for node in inward.nodes().tolist() if nodes is None else nodes:
        if len(outward.relations_of(node)):
            continue
        id_, label = index.id_at(node), index.label_at(node)
        is_text = id_.startswith('"') and not id_.endswith(">")
        if not is_text or len(label) > _MAX_CHARS or len(label.split()) > _MAX_WORDS:
            continue
        links = naming.intersection(inward.relations_of(node))
        bearers = {head for link in links for head in inward.neighbours(node, link)}
        if len(bearers) <= MAX_MEANINGS:
            yield from ((node, bearer) for bearer in sorted(bearers) or [node])


def naming_relations(index: Adjacency) -> Iterator[int]:
    """The numbers of relations to names and identifiers that do not serve as labels, by what they are called.

    Most of their values belong to one entity each, unlike the title of an employee.
    """
    outward, inward = index.sides
    for link, relation in index.links():
        if NAMING.fullmatch(relation.id):
            num_values, num_bearers = len(inward.nodes_with([link])), len(outward.nodes_with([link]))
            if 2 * num_values >= num_bearers:
                yield link
