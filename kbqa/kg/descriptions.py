"""What a graph says about an entity or a relation in a sentence, such as rdfs:comment in a vocabulary."""

from __future__ import annotations

from kbqa.kg.actions import Item
from kbqa.kg.languages import DEFAULT_LANGUAGES, rank
from kbqa.kg.store import GraphStore

_FREEBASE = "http://rdf.freebase.com/ns/"

DESCRIPTION_RELATIONS = (
    "http://schema.org/description",
    "http://www.w3.org/2000/01/rdf-schema#comment",
    "http://www.w3.org/2004/02/skos/core#definition",
    "http://dbpedia.org/ontology/abstract",
    f"{_FREEBASE}common.topic.description",
    "common.topic.description",
)
"""Relations whose values are descriptions."""

_MAX_DESCRIPTIONS = 20  # that are looked at, since most are in other languages
_MAX_CHARS = 1000


def description_of(store: GraphStore, id_: str) -> str | None:
    """The description of an entity or relation, shortened if it is long; None if the graph has none."""
    found = store.tail_entities([id_], DESCRIPTION_RELATIONS, limit=_MAX_DESCRIPTIONS).items
    if not found:
        return None
    text = min(found, key=_foreignness).label
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def _foreignness(literal: Item) -> int:
    """The rank of a text's language."""
    _, _, suffix = literal.id.rpartition('"')
    return rank(suffix[1:] if suffix.startswith("@") else "", DEFAULT_LANGUAGES)
