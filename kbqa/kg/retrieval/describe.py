"""`describe`: a summary of an entity, of bounded size however many edges it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbqa.kg.actions import DESCRIBE, ActionResult, ErrorKind, Item, Success
from kbqa.kg.arguments import ENTITY
from kbqa.kg.descriptions import DESCRIPTION_RELATIONS, description_of
from kbqa.kg.handlers import Surroundings, paging, resolved_entities
from kbqa.kg.specs import ACTIONS, ActionSpec
from kbqa.kg.store import GraphStore, Page

_RDFS, _FREEBASE = "http://www.w3.org/2000/01/rdf-schema#", "http://rdf.freebase.com/ns/"
_SKOS, _SCHEMA = "http://www.w3.org/2004/02/skos/core#", "http://schema.org/"

# Relations whose values are names.
_NAME_RELATIONS = (
    f"{_RDFS}label",
    f"{_SKOS}prefLabel",
    f"{_SKOS}altLabel",
    f"{_SCHEMA}alternateName",
    *(
        f"{namespace}{name}"
        for namespace in (_FREEBASE, "")
        for name in ("type.object.name", "common.topic.alias")
    ),
)
# Per action.
_MAX_ENTITIES = 10
# Per entity and direction; each costs a look-up, which at an endpoint is a request.
_MAX_RELATIONS, _MAX_REMOTE_RELATIONS = 64, 16
_MAX_FACTS = 10
_MAX_NAMES = 20


def describe(store: GraphStore, entity: str) -> dict[str, Any]:
    """Summarise the entity with an id, as JSON.

    Keys: `id`, `label`, `aliases`, `types`, `description` (null if there is none); `tail` and
    `head`, the facts with the entity as head and as tail. Each of these two has the counts
    `relations` and `edges`, and `facts`, one [head, relation, tail] for each of the first
    relations. Edges are counted for the first 64 relations (16 for a remote graph); `truncated`
    says whether there are more relations.
    """
    item = store.item(entity) or Item(entity, entity)
    names = store.tail_entities([entity], _NAME_RELATIONS, limit=_MAX_NAMES).items
    types = store.tail_entities([entity], store.type_relations, limit=_MAX_NAMES).items
    apart = store.items((*_NAME_RELATIONS, *DESCRIPTION_RELATIONS, *store.type_relations))
    told = {item.id for item in apart.values()}
    most = _MAX_REMOTE_RELATIONS if store.is_remote else _MAX_RELATIONS
    tail = store.tail_relations([entity], limit=most)
    head = store.head_relations([entity], limit=most)
    return {
        "id": item.id,
        "label": item.label,
        "aliases": sorted({name.label for name in names} - {item.label}),
        "types": [_json(type_) for type_ in types],
        "description": description_of(store, entity),
        "tail": _facts(tail, told, lambda r: store.tail_entities([entity], [r], limit=1), [item, None]),
        "head": _facts(head, told, lambda r: store.head_entities([entity], [r], limit=1), [None, item]),
    }


def _facts(
    relations: Page, told: set[str], look_up: Callable[[str], Page], ends: Sequence[Item | None]
) -> dict[str, Any]:
    """Summarise one direction; `ends` are the head and tail of the facts, with None for the other entity."""
    edges = 0
    facts: list[list[dict[str, str]]] = []
    for relation in relations.items:
        page = look_up(relation.id)
        edges += page.total
        if relation.id not in told and len(facts) < _MAX_FACTS and page.items:
            head, tail = (end or page.items[0] for end in ends)
            facts.append([_json(head), _json(relation), _json(tail)])
    return {
        "relations": relations.total,
        "edges": edges,
        "facts": facts,
        "truncated": relations.total > len(relations.items),
    }


def _json(item: Item) -> dict[str, str]:
    return {"id": item.id, "label": item.label}


def _describe(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    entities = resolved_entities(surroundings.store, arguments["entity"])
    if not isinstance(entities, tuple):
        return entities
    limit, offset = paging(surroundings, arguments)
    page = entities[offset : offset + min(limit, _MAX_ENTITIES)]
    items = tuple(describe(surroundings.store, entity) for entity in page)
    return Success(items, len(entities), truncated=offset + len(page) < len(entities))


ACTIONS.register(
    ActionSpec(
        DESCRIBE,
        "Summarise an entity: its names, types and some of its facts in both directions. Good to find out "
        "which of several entities of one name is meant.",
        _describe,
        {"entity": ENTITY},
        accepts="only one entity argument",
        item=None,
        answers=f"An item for each entity of that name, {_MAX_ENTITIES} at most: `id`, `label`, `aliases`, "
        "`types`, `description` (null if there is none); `tail` and `head`, the facts of which it is the "
        "head and those of which it is the tail, each with `relations` and `edges`, how many there are, "
        "`facts`, one [head, relation, tail] for each of the first relations, and `truncated`, whether "
        "there are more than were counted.",
        errors=(ErrorKind.ENTITY_NOT_IN_KG,),
    )
)
