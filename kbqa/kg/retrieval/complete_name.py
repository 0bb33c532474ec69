"""`complete_name`: the entities that a name may stand for of which only the beginning is written yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbqa.kg.actions import COMPLETE_NAME, ActionResult, Success
from kbqa.kg.arguments import TEXT, Argument, ArgumentKind
from kbqa.kg.handlers import Surroundings, paging
from kbqa.kg.specs import ACTIONS, ActionSpec

_MAX_CHARS = 200
_SHORT = ArgumentKind(
    lambda value: TEXT.fits(value) and len(value) <= _MAX_CHARS,
    f"a text of at most {_MAX_CHARS} characters",
    {"type": "string", "maxLength": _MAX_CHARS},
)


def _complete_name(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    limit, offset = paging(surroundings, arguments)
    found = surroundings.store.complete(arguments["text"], limit=offset + limit + 1)
    page = tuple(found[offset : offset + limit])
    return Success(page, len(found), truncated=offset + limit < len(found))


ACTIONS.register(
    ActionSpec(
        COMPLETE_NAME,
        "Find the entities of which a name begins with a text, or has its words further on. The last word "
        "may be incomplete.",
        _complete_name,
        {"text": Argument(_SHORT, "the beginning of a name")},
        accepts="only one text argument",
        answers="The label of an item is the name that was found, even if the entity has a preferred one. "
        "Names that begin with the text come first, in alphabetical order. `total` counts the items up to "
        "the end of the page, and one more if there are others. A graph at an endpoint has no index of "
        "names, and yields none.",
    )
)
