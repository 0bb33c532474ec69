"""Results of the one-hop actions in words, as in KG-R1's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_HEAD_RELATIONS,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
    Action,
    ActionResult,
    DatedItem,
    Failure,
    Item,
)

RelationFormat = Literal["flat", "hierarchical"]


def finds_entities(action: Action) -> bool:
    return action.name in (GET_TAIL_ENTITIES, GET_HEAD_ENTITIES)


def describe(action: Action, result: ActionResult, relations: RelationFormat) -> str:
    """One result as the paper words it (figures 10 to 16)."""
    if isinstance(result, Failure):
        return result.message
    entity, relation = action.arguments.get("entity"), action.arguments.get("relation")
    dated = any(isinstance(item, DatedItem) for item in result.items)
    if action.name in (GET_TAIL_RELATIONS, GET_HEAD_RELATIONS):
        side = "Tail" if action.name == GET_TAIL_RELATIONS else "Head"
        heading = f'{side} relations for entity "{entity}"'
        listing = listed(result.items) if relations == "flat" else _as_tree(result.items)
    elif action.name == GET_TAIL_ENTITIES:
        plain = f'Tail entities for relation "{relation}" with head "{entity}"'
        heading = f"Tail entities connected by ({entity}, {relation}, ?)" if dated else plain
        listing = listed(result.items)
    else:
        plain = f'Head entities for relation "{relation}" with tail "{entity}"'
        heading = f"Head entities connected by (?, {relation}, {entity})" if dated else plain
        listing = listed(result.items)
    rest = f", ... ({result.total} in all)" if result.truncated else ""
    gap = "" if listing.startswith("\n") else " "
    return f"{heading}:{gap}{listing}{rest}"


def listed(items: Sequence[Item]) -> str:
    """Labels; those of dated facts with their times, `Entity [2005-02; 2008-10]` (figure 16)."""
    if not any(isinstance(item, DatedItem) for item in items):
        return ", ".join(item.label for item in items)
    return "; ".join(
        f"{item.label} [{'; '.join(item.times)}]" if isinstance(item, DatedItem) else item.label
        for item in items
    )


def _as_tree(relations: Sequence[Item]) -> str:
    """Relations by domain and type, one type per line (Table 10); other names come first."""
    plain = [item.label for item in relations if item.label.count(".") < 2]
    domains: dict[str, dict[str, list[str]]] = {}
    for item in relations:
        if item.label.count(".") >= 2:
            rest, _, last = item.label.rpartition(".")
            domain, _, kind = rest.partition(".")
            domains.setdefault(domain, {}).setdefault(kind, []).append(last)
    lines = [", ".join(plain)] if plain else [""]
    for domain, kinds in domains.items():
        lines.append(domain)
        lines.extend(f"  {kind}: {', '.join(properties)}" for kind, properties in kinds.items())
    return "\n".join(lines)
