"""The current versions of graphs, as the tools report them, cached for a moment."""

from __future__ import annotations

import threading
import time

from kbqa.errors import GraphNotFoundError
from kbqa.kg.tools import ListedGraphTools


class GraphVersions:
    """Versions by graph. Safe for many threads; one of them asks at a time.

    Args:
        age_s: seconds for which an answer is reused.
    """

    def __init__(self, tools: ListedGraphTools, age_s: float = 0.0) -> None:
        self._tools, self._age_s = tools, age_s
        self._versions: dict[str, str] = {}
        self._until = 0.0
        self._asking = threading.Lock()

    def fresh(self, kg: str) -> str | None:
        """The version of a graph if a recent answer has it, else None."""
        return self._versions.get(kg) if time.monotonic() < self._until else None

    def of(self, kg: str) -> str:
        """The version of a graph.

        Raises:
            GraphNotFoundError: there is no such graph.
            GraphUnavailableError: the tools cannot be reached.
        """
        with self._asking:
            if (version := self.fresh(kg)) is not None:
                return version
            asked = time.monotonic()
            self._versions = {graph.name: graph.version for graph in self._tools.graphs()}
            self._until = asked + self._age_s
            if kg not in self._versions:
                raise GraphNotFoundError(kg, list(self._versions))
            return self._versions[kg]
