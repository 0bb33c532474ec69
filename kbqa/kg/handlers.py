"""Shared helpers of the functions that answer actions: surroundings, paging, failures, name resolution."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbqa.errors import (
    AmbiguousNameError,
    GraphError,
    GraphUnavailableError,
    QueryLostError,
    QueryOverloadError,
    QueryRefusedError,
    QuerySyntaxError,
    QueryTimeoutError,
)
from kbqa.kg.actions import ONE_HOP_ACTIONS, ErrorCode, ErrorKind, Failure
from kbqa.kg.ranking.encoders import is_named
from kbqa.kg.ranking.ranker import SchemaIndex
from kbqa.kg.store import GraphStore

MAX_ITEMS = 1000
OTHER_ENCODER = "other_encoder"
"""`reason` in the details of a failure: relations are compared by another encoder than was asked for."""
# Maximum length of an argument quoted in a message.
_ECHO_CHARS = 200

_CODES = {
    ErrorKind.INVALID_ACTION: ErrorCode.SERVER_ERROR,
    ErrorKind.MISSING_REQUIRED_FIELDS: ErrorCode.FORMAT_ERROR,
    ErrorKind.WRONG_ARGUMENT_COUNT: ErrorCode.FORMAT_ERROR,
    ErrorKind.SAMPLE_MISSING: ErrorCode.SAMPLE_NOT_FOUND,
    ErrorKind.ENTITY_NOT_IN_KG: ErrorCode.ENTITY_NOT_FOUND,
    ErrorKind.INVALID_RELATION: ErrorCode.RELATION_NOT_FOUND,
    ErrorKind.RELATION_REJECTED: ErrorCode.RELATION_NOT_FOUND,
    ErrorKind.NO_RELATIONS_FOUND: ErrorCode.NO_RESULTS,
    ErrorKind.NO_ENTITIES_FOUND: ErrorCode.NO_RESULTS,
    ErrorKind.QUERY_SYNTAX: ErrorCode.FORMAT_ERROR,
    ErrorKind.QUERY_REFUSED: ErrorCode.FORMAT_ERROR,
    ErrorKind.QUERY_TIMEOUT: ErrorCode.SERVER_ERROR,
    ErrorKind.QUERY_FAILED: ErrorCode.SERVER_ERROR,
    ErrorKind.OVERLOADED: ErrorCode.SERVER_ERROR,
    ErrorKind.BACKEND_UNAVAILABLE: ErrorCode.SERVER_ERROR,
}
# The first entry that matches a store's exception determines the kind of failure.
_KINDS_OF_ERRORS: tuple[tuple[type[GraphError], ErrorKind], ...] = (
    (AmbiguousNameError, ErrorKind.INVALID_RELATION),
    (QuerySyntaxError, ErrorKind.QUERY_SYNTAX),
    (QueryRefusedError, ErrorKind.QUERY_REFUSED),
    (QueryTimeoutError, ErrorKind.QUERY_TIMEOUT),
    (QueryOverloadError, ErrorKind.OVERLOADED),
    (QueryLostError, ErrorKind.BACKEND_UNAVAILABLE),
    (GraphUnavailableError, ErrorKind.BACKEND_UNAVAILABLE),
    (GraphError, ErrorKind.QUERY_FAILED),
)
_POSITION = re.compile(r"\berror at (\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The context in which an action is executed.

    Attributes:
        store: the graph, or the per-question subgraph that restricts it.
        schema: ranks the relations and types of the whole graph.
        max_items: maximum items of a result, and the default of the `limit` argument.
        deadline_s: seconds that a query of the action may run.
        longest_s: seconds that an action may ask for by `timeout_s`; None allows no more than `deadline_s`.
    """

    store: GraphStore
    schema: SchemaIndex
    max_items: int = MAX_ITEMS
    deadline_s: float = 3.0
    longest_s: float | None = None

    def allowed_s(self, arguments: Mapping[str, Any]) -> float:
        """Seconds that a query of an action with these checked arguments may run."""
        longest_s = max(self.deadline_s, self.longest_s or 0.0)
        asked_s: float = arguments.get("timeout_s", self.deadline_s)
        return min(asked_s, longest_s)


def paging(surroundings: Surroundings, arguments: Mapping[str, Any]) -> tuple[int, int]:
    """(limit, offset) of an action."""
    limit = min(arguments.get("limit", surroundings.max_items), surroundings.max_items)
    return limit, arguments.get("offset", 0)


def invalid_action(name: Any) -> Failure:
    """The paper's error for an action that does not exist."""
    available = f"(use: {', '.join(ONE_HOP_ACTIONS)})"
    return failure(ErrorKind.INVALID_ACTION, f"Action {quote(name)} not available {available}")


def other_encoder(surroundings: Surroundings, wanted: str) -> Failure | None:
    """The failure if relations are not compared by the wanted encoder, else None."""
    encoder = surroundings.schema.encoder
    if is_named(encoder, wanted):
        return None
    message = (
        f"relations are compared by the encoder {encoder.name}, not by {wanted}: let "
        "KBQA_KG_SERVER_ENCODER name its directory or its server, or change graph.encoder in the recipe"
    )
    return failure(ErrorKind.QUERY_REFUSED, message, {"reason": OTHER_ENCODER})


def failure(kind: ErrorKind, message: str, details: Mapping[str, Any] | None = None) -> Failure:
    """A failure of the given kind, with the kind's error code."""
    return Failure(_CODES[kind], kind, message, details or {})


def store_failure(error: GraphError) -> Failure:
    """Convert a store's exception to a failure.

    Details are `line` and `column` (from 1) for a syntax error, and `retry_after_s` for overload.
    """
    kind = next(kind for type_, kind in _KINDS_OF_ERRORS if isinstance(error, type_))
    details: dict[str, Any] = {}
    if isinstance(error, QueryOverloadError):
        details = {"retry_after_s": error.retry_after_s}
    elif isinstance(error, QuerySyntaxError) and (position := _POSITION.search(str(error))):
        details = {"line": int(position[1]), "column": int(position[2])}
    return failure(kind, str(error), details)


def quote(value: Any) -> str:
    """An argument for a message: in quotes, and cut if it is long."""
    text = value if isinstance(value, str) else str(value)
    return f'"{text}"' if len(text) <= _ECHO_CHARS else f'"{text[:_ECHO_CHARS]}…"'


def resolved(store: GraphStore, names: Sequence[str]) -> tuple[str, ...] | Failure:
    """The ids that names stand for, or a failure about the first name that is not in the graph."""
    ids: dict[str, None] = {}
    for name in names:
        found = store.resolve_entity(name)
        if not found:
            return failure(ErrorKind.ENTITY_NOT_IN_KG, f"Entity {quote(name)} not found in KG")
        ids.update(dict.fromkeys(found))
    return tuple(ids)


def resolved_entities(store: GraphStore, name: str) -> tuple[str, ...] | Failure:
    """Like `resolved` for one name, but without literals if the name also stands for an entity."""
    ids = resolved(store, (name,))
    if not isinstance(ids, tuple):
        return ids
    return tuple(id_ for id_ in ids if not store.entity_term(id_).startswith('"')) or ids
