"""`resolve_names`: what many names stand for at once, in as few queries as the graph allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbqa.kg.actions import RESOLVE_NAMES, ActionResult, Item, Success
from kbqa.kg.arguments import TEXTS, Argument
from kbqa.kg.handlers import Surroundings
from kbqa.kg.specs import ACTIONS, ActionSpec

MAX_BEARERS = 50


def _resolve_names(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    names = list(dict.fromkeys(arguments["names"]))
    found = surroundings.store.named(names, limit=MAX_BEARERS)
    entities = {name: _entities(found[name]) for name in names if name in found}
    return Success((), 0, details={"entities": entities})


def _entities(items: Sequence[Item]) -> list[dict[str, str]]:
    """Items as JSON, without literals if there are entities, whose names the literals then are."""
    entities = [item for item in items if not item.id.startswith('"')]
    return [{"id": item.id, "label": item.label} for item in entities or items]


ACTIONS.register(
    ActionSpec(
        RESOLVE_NAMES,
        "Find the entities and values that names stand for. A name is an id, or the exact label of one or "
        "several entities.",
        _resolve_names,
        {"names": Argument(TEXTS, "ids and exact labels")},
        accepts="only one names argument",
        item=None,
        answers=f"No items. Details: `entities`, for each name that stands for something, its `id` and "
        f"`label`; of a label, the first {MAX_BEARERS} entities that bear it.",
    )
)
