"""The HTTP status of each domain error in this service."""

from __future__ import annotations

from kbqa.errors import (
    ChangeConflictError,
    ChangeTooLargeError,
    GraphChangeError,
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
from services.access.errors import ACCESS_STATUS

STATUS: dict[type[KbqaError], int] = {
    **ACCESS_STATUS,
    GraphNotFoundError: 404,
    GraphChangeError: 400,
    ChangeTooLargeError: 413,
    ChangeConflictError: 409,
    QuerySyntaxError: 400,
    QueryRefusedError: 403,
    QueryOverloadError: 429,
    # Its process was killed by something else: the same query may succeed.
    QueryLostError: 503,
    # The query is valid, but exceeds the time or memory limit, or the engine cannot evaluate it. That is the
    # query's fault, so the status is not 5xx, which proxies retry and which raises alarms, nor 408, which
    # lets clients send the query again.
    QueryError: 422,
    GraphUnavailableError: 503,
    GraphError: 500,
}
