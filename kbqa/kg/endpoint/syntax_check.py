"""Checks whether a query parses before it is sent to an endpoint."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

import pyoxigraph as ox

from kbqa.errors import GraphUnavailableError, QueryError, QuerySyntaxError
from kbqa.kg.sparql.guard import CheckedQuery
from kbqa.kg.sparql.pool import QueryPool

# Parsing takes milliseconds; a longer run is not spent on parsing.
_MAX_S = 0.25


class SyntaxCheck:
    """Runs queries over an empty store in a killable process, since Oxigraph offers no parser alone.

    Args:
        queries: runs the queries; if None, a new pool of one process.
    """

    def __init__(self, queries: QueryPool | None) -> None:
        self._nothing = Path(tempfile.mkdtemp(prefix="kbqa-nothing-"))
        ox.Store(str(self._nothing)).flush()
        weakref.finalize(self, shutil.rmtree, self._nothing, ignore_errors=True)
        if queries is None:
            queries = QueryPool(size=1)
            weakref.finalize(self, queries.close)
        self._queries = queries

    def check(self, query: CheckedQuery, *, deadline_s: float) -> None:
        """Check a query's syntax; a query that cannot be checked in time passes.

        Raises:
            QuerySyntaxError: the query does not parse; the message says where.
        """
        try:
            self._queries.run(self._nothing, query, query.default_format, deadline_s=min(deadline_s, _MAX_S))
        except QuerySyntaxError:
            raise
        except (QueryError, GraphUnavailableError):
            pass
