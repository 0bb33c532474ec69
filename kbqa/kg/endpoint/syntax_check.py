"""Whether a query parses, found out before it is sent anywhere."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

import pyoxigraph as ox

from kbqa.errors import GraphUnavailableError, QueryError, QuerySyntaxError
from kbqa.kg.sparql.guard import CheckedQuery, ResultFormat
from kbqa.kg.sparql.pool import QueryPool

# Parsing takes milliseconds; what takes longer is no question of syntax.
_MAX_S = 0.25


class SyntaxCheck:
    """Runs queries over nothing, in a process that can be killed: a parser alone cannot be had.

    Args:
        queries: the processes; a pool of its own, of one, when None.
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
        """Judge a query; one that cannot be judged in time is left to whoever executes it.

        Raises:
            QuerySyntaxError: it does not parse; says where.
        """
        result = ResultFormat.NTRIPLES if query.returns_graph else ResultFormat.JSON
        try:
            self._queries.run(self._nothing, query, result, deadline_s=min(deadline_s, _MAX_S))
        except QuerySyntaxError:
            raise
        except (QueryError, GraphUnavailableError):
            pass
