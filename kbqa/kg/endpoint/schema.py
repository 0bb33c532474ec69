"""The relations and types of a graph at an endpoint, listed once for ranking and for local names.

What a graph uses can be listed in seconds only if the graph is small. Of a large one, such as Freebase, what
it declares as properties and classes is listed instead, which the server finds by an index; and the other
way round if that fails or is empty. Of a large graph that declares none, such as Wikidata's classes, what
some of its facts use is listed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from kbqa.errors import QueryError
from kbqa.kg.actions import Item
from kbqa.kg.embedded.vocabulary import CLASS_KINDS, PROPERTY_KINDS
from kbqa.kg.endpoint.lookups import type_pattern
from kbqa.kg.endpoint.record import TYPE_PROPERTIES
from kbqa.kg.sparql.prefixes import PREFIXES

logger = logging.getLogger(__name__)

# Triples from which a graph counts as large.
LARGE = 20_000_000
# Facts of which the relations or types are listed if those of all facts cannot be.
SOME = 1_000_000
# Seconds for which a listing that failed is not tried again.
_PAUSE_S = 300.0

RELATIONS, TYPES = "relations", "types"
_FREEBASE_KINDS = {RELATIONS: "type.property", TYPES: "type.type"}
_KINDS = {RELATIONS: PROPERTY_KINDS, TYPES: CLASS_KINDS}
# How Wikidata's property nodes lead to the forms that are used as relations.
_FORMS = ("directClaim", "claim", "statementProperty", "qualifier")


Every = Callable[[str], Iterable[str]]


class SchemaListing:
    """Lists the relations and types of one graph; safe for many threads.

    Args:
        triples: in the graph; None if it was too slow to count them.
    """

    def __init__(self, triples: int | None) -> None:
        self._is_large = triples is None or triples > LARGE
        self._lock = threading.Lock()
        self._listed: dict[str, Sequence[Item]] = {}
        self._failed: dict[str, tuple[float, QueryError]] = {}

    def get(
        self, what: str, every: Every, items: Callable[[Sequence[str]], Iterable[Item]]
    ) -> Sequence[Item]:
        """The `RELATIONS` or `TYPES` by label.

        Args:
            every: all distinct ?x of a pattern, as ids; raises if they cannot be listed.
            items: the items with some ids.

        Raises:
            QueryError: they cannot be listed, or could not some minutes ago.
        """
        with self._lock:
            if what not in self._listed:
                failed_at, error = self._failed.get(what, (0.0, None))
                if error is not None and time.monotonic() - failed_at < _PAUSE_S:
                    raise error
                try:
                    found = items(self._ids(what, every))
                except QueryError as error:
                    self._failed[what] = time.monotonic(), error
                    raise
                self._listed[what] = sorted(found, key=lambda item: (item.label, item.id))
            return self._listed[what]

    def _ids(self, what: str, every: Every) -> Sequence[str]:
        used = "?s ?x ?o" if what == RELATIONS else type_pattern()
        ways = [used, _declared(what)]
        if self._is_large:
            ways.reverse()
        failed: QueryError | None = None
        for pattern in ways:
            try:
                if found := list(every(pattern)):
                    return found
                if pattern == used:
                    return ()
            except QueryError as error:
                failed = error
        if failed is None:
            return ()
        found = list(every(f"{{ SELECT ?x WHERE {{ {used} }} LIMIT {SOME} }}"))
        logger.warning(
            "the endpoint is too slow to list all %s of a graph: only those of a part of its facts are known",
            what,
        )
        return found


def _declared(what: str) -> str:
    """A pattern for what the graph declares as a property or class, as ?x."""
    kinds = " ".join(f"<{iri}>" for iri in (*_KINDS[what], PREFIXES["ns"] + _FREEBASE_KINDS[what]))
    types = " ".join(f"<{iri}>" for iri in TYPE_PROPERTIES)
    declared = f"VALUES ?kind {{ {kinds} }} VALUES ?type {{ {types} }} ?x ?type ?kind"
    if what == TYPES:
        return declared
    forms = " ".join(f"<{PREFIXES['wikibase']}{form}>" for form in _FORMS)
    return f"{{ {declared} }} UNION {{ VALUES ?form {{ {forms} }} ?property ?form ?x }}"
