"""Nodes without a name, which stand for a fact of several parts: Freebase's compound value types (CVT).

An agent that reads a list of their ids learns nothing; KBQA-R1's code tells it how many
they are, of what type, and with which relations to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kbqa.kg.actions import Item
from kbqa.kg.embedded.indexing import TYPE_RELATIONS
from kbqa.kg.store import GraphStore

# The number that KBQA-R1's code tells.
_RELATIONS = 10
# Nodes that are asked for their types and relations: those of one answer are alike.
_ASKED = 100


def compound_values(store: GraphStore, items: Sequence[Item]) -> dict[str, Any] | None:
    """What to tell of those items that have no name: how many `entities`, their `types`, the
    first `relations` of which they are the head. None if all have one."""
    nameless = [item.id for item in items if _is_nameless(store, item)]
    if not nameless:
        return None
    asked = nameless[:_ASKED]
    types = store.tail_entities(asked, sorted(TYPE_RELATIONS), limit=_RELATIONS).items
    relations = store.tail_relations(asked, limit=_RELATIONS + len(TYPE_RELATIONS)).items
    further = [item for item in relations if item.id not in TYPE_RELATIONS]
    return {
        "entities": len(nameless),
        "types": [_told(item) for item in types],
        "relations": [_told(item) for item in further[:_RELATIONS]],
    }


def _is_nameless(store: GraphStore, item: Item) -> bool:
    """Whether it goes by its IRI, or is blank; a name in a delimited file is one."""
    if item.label != item.id:
        return False
    return item.id.startswith("_:") or store.entity_term(item.id) == f"<{item.id}>"


def _told(item: Item) -> dict[str, str]:
    return {key: value for key, value in asdict(item).items() if key in ("id", "label")}
