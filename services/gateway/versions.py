"""The current versions of graphs, as kg_server reports them, cached for a moment."""

from __future__ import annotations

import asyncio
import time

from kbqa.errors import GraphNotFoundError
from kbqa.kg.tools import ListedGraphTools

_AGE_S = 1.0


class GraphVersions:
    """Versions by graph; of one event loop."""

    def __init__(self, tools: ListedGraphTools) -> None:
        self._tools = tools
        self._versions: dict[str, str] = {}
        self._asked_at = -_AGE_S
        self._asking = asyncio.Lock()

    async def of(self, kg: str) -> str:
        """The version of a graph.

        Raises:
            GraphNotFoundError: there is no such graph.
            GraphUnavailableError: kg_server does not answer.
        """
        if kg not in self._versions or time.monotonic() - self._asked_at > _AGE_S:
            async with self._asking:
                began = time.monotonic()
                if kg not in self._versions or began - self._asked_at > _AGE_S:
                    graphs = await asyncio.to_thread(self._tools.graphs)
                    self._versions = {graph.name: graph.version for graph in graphs}
                    self._asked_at = began
        if kg not in self._versions:
            raise GraphNotFoundError(kg, list(self._versions))
        return self._versions[kg]
