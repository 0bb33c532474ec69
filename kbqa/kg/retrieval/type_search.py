"""`search_types`: KnowCoder-A1's SearchTypes, for questions without topic entities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbqa.kg.actions import SEARCH_TYPES, ActionResult, ErrorKind, ScoredItem, Success
from kbqa.kg.arguments import TEXT, Argument
from kbqa.kg.handlers import Surroundings, failure, paging
from kbqa.kg.specs import ACTIONS, ActionSpec

TOP = 10


def _search_types(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    ranker = surroundings.schema.types
    total = ranker.count()
    if not total:
        return failure(ErrorKind.NO_ENTITIES_FOUND, "No types found in knowledge graph")
    limit, offset = paging(surroundings, {"limit": TOP, **arguments})
    items = tuple(ranker.rank(arguments["query"], top_k=offset + limit)[offset:])
    return Success(items, total, truncated=offset + len(items) < total)


ACTIONS.register(
    ActionSpec(
        SEARCH_TYPES,
        "Find the types (classes) of the graph whose names are closest to a phrase such as 'film director'.",
        _search_types,
        {"query": Argument(TEXT, "a phrase for the type")},
        accepts="only one query argument",
        item=ScoredItem,
        answers=f"The types that resemble it most, best first, {TOP} unless `limit` says otherwise.",
        errors=(ErrorKind.NO_ENTITIES_FOUND,),
    )
)
