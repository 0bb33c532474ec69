"""`search_types`: KnowCoder-A1's SearchTypes, for questions that name no entity to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbqa.kg.actions import SEARCH_TYPES, ActionResult, ErrorKind, Success
from kbqa.kg.handlers import TEXT, Handler, Surroundings, failure, paging

TOP = 10


def _search_types(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    """Items: the types that resemble `query` most, as `ScoredItem`s, ten unless `limit` says otherwise."""
    ranker = surroundings.schema.types
    total = ranker.count()
    if not total:
        return failure(ErrorKind.NO_ENTITIES_FOUND, "No types found in knowledge graph")
    limit, offset = paging(surroundings, {"limit": TOP, **arguments})
    items = tuple(ranker.rank(arguments["query"], top_k=offset + limit)[offset:])
    return Success(items, total, truncated=offset + len(items) < total)


HANDLERS: Mapping[str, Handler] = {
    SEARCH_TYPES: Handler(_search_types, {"query": TEXT}, accepts="only one query argument"),
}
