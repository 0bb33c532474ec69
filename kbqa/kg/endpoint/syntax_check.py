"""Checks whether a query parses before it is sent to an endpoint."""

from __future__ import annotations

import weakref

from kbqa.errors import QueryTimeoutError
from kbqa.kg.sparql.guard import CheckedQuery
from kbqa.kg.sparql.pool import QueryPool


class SyntaxCheck:
    """Parses queries in a killable process.

    Args:
        queries: parses them; if None, a new pool of one process.
    """

    def __init__(self, queries: QueryPool | None) -> None:
        if queries is None:
            queries = QueryPool(size=1)
            weakref.finalize(self, queries.close)
        self._queries = queries

    def check(self, query: CheckedQuery, *, deadline_s: float) -> None:
        """Check a query's syntax. A query that cannot be checked does not pass.

        Servers differ in what they accept and in what they say of an error, so the answer to a query would
        otherwise depend on how busy this machine is.

        Raises:
            QuerySyntaxError: the query does not parse; the message says where.
            QueryOverloadError, QueryTimeoutError, QueryMemoryError, QueryLostError: it was not checked.
        """
        try:
            self._queries.parse(query, deadline_s=deadline_s)
        except QueryTimeoutError:
            raise QueryTimeoutError(
                f"the query's syntax could not be checked within {deadline_s:g} s: send it again, or "
                "allow it more time"
            ) from None
