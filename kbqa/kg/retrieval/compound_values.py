"""Nodes without names that represent facts with several parts: Freebase's compound value types (CVT).

A list of their ids tells an agent nothing. As in KBQA-R1's code, the agent is told their
number, their types, and the relations with which it can continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kbqa.kg.actions import Item
from kbqa.kg.naming import ENTITY_NAMESPACE
from kbqa.kg.store import GraphStore

# Relations listed, as in KBQA-R1's code.
_RELATIONS = 10
# Nodes whose types and relations are looked up; nodes in one answer are similar.
_ASKED = 100


def compound_values(store: GraphStore, items: Sequence[Item]) -> dict[str, Any] | None:
    """Summarise the items without names; None if all have one.

    Keys: the number of `entities`, their `types`, and the first of their outgoing `relations`.
    """
    nameless = [item.id for item in items if is_nameless(store, item)]
    if not nameless:
        return None
    asked = nameless[:_ASKED]
    to_types = [item.id for item in store.items(store.type_relations).values()]
    types = store.tail_entities(asked, to_types, limit=_RELATIONS).items
    relations = store.tail_relations(asked, limit=_RELATIONS + len(to_types)).items
    further = [item for item in relations if item.id not in to_types]
    return {
        "entities": len(nameless),
        "types": [_told(item) for item in types],
        "relations": [_told(item) for item in further[:_RELATIONS]],
    }


def is_nameless(store: GraphStore, item: Item) -> bool:
    """Whether an item has no label and is neither a literal nor a name from a delimited file."""
    named = ('"', f"<{ENTITY_NAMESPACE}")
    return item.label == item.id and not store.entity_term(item.id).startswith(named)


def _told(item: Item) -> dict[str, str]:
    return {key: value for key, value in asdict(item).items() if key in ("id", "label")}
