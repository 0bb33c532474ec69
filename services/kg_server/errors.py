"""Which HTTP status each domain error has here."""

from __future__ import annotations

from kbqa.errors import (
    GraphError,
    GraphNotFoundError,
    GraphUnavailableError,
    KbqaError,
    QueryError,
    QueryLostError,
    QueryOverloadError,
    QueryRefusedError,
    QuerySyntaxError,
)

STATUS: dict[type[KbqaError], int] = {
    GraphNotFoundError: 404,
    QuerySyntaxError: 400,
    QueryRefusedError: 403,
    QueryOverloadError: 429,
    # Killed by somebody else: the same query may succeed.
    QueryLostError: 503,
    # Timeouts, memory and what the engine cannot evaluate: understood, but not to be carried
    # out within the limits. That is the query's fault, so it is no 5xx, which proxies retry
    # and people are woken for; nor 408, which clients take as leave to send it again.
    QueryError: 422,
    GraphUnavailableError: 503,
    GraphError: 500,
}
