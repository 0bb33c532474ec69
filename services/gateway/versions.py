"""The current versions of graphs, as kg_server reports them, cached for a moment."""

from __future__ import annotations

import asyncio

from kbqa.kg.tools import ListedGraphTools
from kbqa.kg.versions import GraphVersions

_AGE_S = 1.0


class CurrentVersions:
    """`GraphVersions` for one event loop: a single thread asks, however many questions wait for it."""

    def __init__(self, tools: ListedGraphTools) -> None:
        self._versions = GraphVersions(tools, _AGE_S)
        self._asking = asyncio.Lock()

    async def of(self, kg: str) -> str:
        """The version of a graph; raises as `GraphVersions.of`."""
        if (version := self._versions.fresh(kg)) is not None:
            return version
        async with self._asking:
            if (version := self._versions.fresh(kg)) is not None:
                return version
            return await asyncio.to_thread(self._versions.of, kg)
