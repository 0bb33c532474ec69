"""`link_entities`: the entities and values that a question names, if no topic entities are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbqa.kg.actions import LINK_ENTITIES, ActionResult, Mention, Success
from kbqa.kg.arguments import Argument, short_text
from kbqa.kg.handlers import Surroundings, paging
from kbqa.kg.specs import ACTIONS, ActionSpec

# The time for linking grows with the square of the length.
_MAX_QUESTION_CHARS = 8000


def _link_entities(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    limit, offset = paging(surroundings, arguments)
    mentions = tuple(surroundings.store.link(arguments["question"]))
    page = mentions[offset : offset + limit]
    return Success(page, len(mentions), truncated=offset + len(page) < len(mentions))


ACTIONS.register(
    ActionSpec(
        LINK_ENTITIES,
        "Find the entities and values that a question names. Each comes with its place in the question and "
        "a score; 1 is its exact name.",
        _link_entities,
        {"question": Argument(short_text(_MAX_QUESTION_CHARS), "the question in natural language")},
        accepts="only one question argument",
        item=Mention,
        answers="`start` and `end` are the place in characters; `score` is below 1 for what only resembles "
        "a name: it is misspelt, in another number, or a part of a name. Names of classes and relations are "
        "left out, except of a class that is an entity with facts of its own. In an embedded graph, a text "
        "that no entity has as a name, such as a city in addresses, is an item, too; its id is the literal.",
    )
)
