"""Which HTTP status each domain error has here."""

from __future__ import annotations

from kbqa.errors import (
    GraphError,
    GraphNotFoundError,
    GraphUnavailableError,
    KbqaError,
    QueryError,
    QueryRefusedError,
    QuerySyntaxError,
    QueryTimeoutError,
)

STATUS: dict[type[KbqaError], int] = {
    GraphNotFoundError: 404,
    QuerySyntaxError: 400,
    QueryRefusedError: 403,
    # Not 408, which browsers and proxies take as leave to send the query again.
    QueryTimeoutError: 504,
    # Out of memory or failed in the engine: 500, as the SPARQL 1.1 Protocol has it.
    QueryError: 500,
    GraphUnavailableError: 503,
    GraphError: 500,
}
