"""Asks look-ups' queries of an endpoint, and reads their answers whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from cachetools import LRUCache

from kbqa.errors import QueryError
from kbqa.kg.actions import Item
from kbqa.kg.endpoint import lookups
from kbqa.kg.endpoint.client import EndpointClient
from kbqa.kg.endpoint.record import Endpoint, ServerKind
from kbqa.kg.endpoint.results import ROWS, Binding, id_of, read_bindings, readable
from kbqa.kg.store import Page
from kbqa.kg.time_limits import look_up_s

# Results of up to this many items are fetched whole and sorted here; for larger ones the server
# sorts and returns a page. Below the 10,000 rows to which public endpoints cut results.
WINDOW = 5000
_MAX_LISTED = 200_000


class EndpointReader:
    """Rows, ids, items, numbers and pages from one endpoint; all raise `QueryError` if the endpoint cut them.

    A query without a deadline of its own has the endpoint's, or what its action allows (`look_up_s`).

    Args:
        recent: what was asked lately.
        max_bytes: maximum size of an answer.
    """

    def __init__(
        self, endpoint: Endpoint, client: EndpointClient, recent: RecentAnswers, *, max_bytes: int
    ) -> None:
        self.naming = lookups.Naming(endpoint)
        self._endpoint, self._client, self._recent, self._max_bytes = endpoint, client, recent, max_bytes
        self._sorted_inside = endpoint.server is ServerKind.VIRTUOSO

    @property
    def max_rows(self) -> int:
        """Rows that a query may ask for."""
        return 2 * WINDOW - 1

    def rows(self, query: str, deadline_s: float | None = None) -> list[Binding]:
        known = self._recent.get(query)
        if known is not None:
            assert isinstance(known, list)
            return known
        deadline_s = deadline_s or look_up_s(self._endpoint.deadline_s)
        answer = self._client.ask(query, ROWS, deadline_s=deadline_s, max_bytes=self._max_bytes)
        with readable(self._endpoint.url):
            _, rows, truncated = read_bindings(answer, 2 * WINDOW)
        if truncated:
            raise QueryError("the endpoint cut the answer to a look-up: allow larger results there or here")
        self._recent.put(query, rows, len(answer.body))
        return rows

    def ids(self, query: str) -> tuple[str, ...]:
        return tuple(sorted({id_of(row["x"]) for row in self.rows(query)}))

    def items(self, query: str) -> Iterator[Item]:
        return map(lookups.item_of, self.rows(query))

    def number(self, query: str, deadline_s: float | None = None) -> int:
        [row] = self.rows(query, deadline_s)
        return int(row["n"]["value"])

    def page(self, pattern: str, limit: int, offset: int) -> Page:
        """One page of the ?x of a pattern."""
        items = list(self.items(self.naming.first(pattern, WINDOW + 1)))
        if len(items) <= WINDOW:
            items.sort(key=by_label)
            return Page(tuple(items[offset : offset + limit]), len(items))
        total = self.number(lookups.count(pattern))
        page = self.naming.page(pattern, limit, offset, sorted_inside=self._sorted_inside)
        return Page(tuple(self.items(page)), total)

    def every(self, pattern: str, deadline_s: float | None = None) -> Iterator[Binding]:
        """All distinct ?x of a pattern, fetched in several queries."""
        for offset in range(0, _MAX_LISTED, WINDOW):
            query = lookups.distinct(pattern, WINDOW, offset, sorted_inside=self._sorted_inside)
            rows = self.rows(query, deadline_s)
            yield from rows
            if len(rows) < WINDOW:
                return
        raise QueryError(f"there are more than {_MAX_LISTED} of them, too many to list")


class RecentAnswers:
    """LRU cache of answers, bounded by their size in bytes; safe for many threads."""

    def __init__(self, max_bytes: int) -> None:
        self._lock = threading.Lock()
        self._entries: LRUCache[Any, tuple[object, int]] = LRUCache(
            max_bytes, getsizeof=lambda entry: entry[1]
        )

    def get(self, key: Any) -> object | None:
        with self._lock:
            value, _ = self._entries.get(key, (None, 0))
            return value

    def put(self, key: Any, value: object, size: int) -> None:
        with self._lock:
            if size <= self._entries.maxsize:
                self._entries[key] = (value, size)


def by_label(item: Item) -> tuple[str, str]:
    return item.label, item.id
