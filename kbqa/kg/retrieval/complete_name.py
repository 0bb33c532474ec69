"""`complete_name`: the entities that a name may stand for, when only its beginning is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbqa.kg.actions import COMPLETE_NAME, ActionResult, Success
from kbqa.kg.arguments import Argument, short_text
from kbqa.kg.handlers import Surroundings, paging
from kbqa.kg.specs import ACTIONS, ActionSpec

_MAX_CHARS = 200


def _complete_name(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    limit, offset = paging(surroundings, arguments)
    found = surroundings.store.complete(arguments["text"], limit=offset + limit + 1)
    page = tuple(found[offset : offset + limit])
    return Success(page, len(found), truncated=offset + limit < len(found))


ACTIONS.register(
    ActionSpec(
        COMPLETE_NAME,
        "Find entities by the beginning of a name, or of a later word in it. Only the last word may be "
        "incomplete.",
        _complete_name,
        {"text": Argument(short_text(_MAX_CHARS), "the beginning of a name")},
        accepts="only one text argument",
        answers="The label of an item is the name that was found, even if the entity has a preferred one. "
        "Names that begin with the text come first, in alphabetical order. `total` counts the items up to "
        "the end of the page, and one more if there are others. A graph at an endpoint has no index of "
        "names, and yields none.",
    )
)
