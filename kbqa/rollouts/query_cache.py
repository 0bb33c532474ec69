"""Graph tools that execute equal actions once."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kbqa.kg.actions import Action, ActionResult, Failure, GraphTools


class QueryCache:
    """For the rollout of one question: equal actions of branches are executed once (Algorithm 1, Q_cache).

    A transient failure is returned for all equal actions of a call, but it is not cached.

    Attributes:
        executed: how many actions were.
    """

    def __init__(self, tools: GraphTools) -> None:
        self._tools, self.executed = tools, 0
        self._results: dict[str, ActionResult] = {}

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        """As `GraphTools.execute`."""
        asked = {_key(kg, graph, action): action for action in actions}
        missing = {key: action for key, action in asked.items() if key not in self._results}
        results = dict(self._results)
        if missing:
            self.executed += len(missing)
            found = self._tools.execute(kg, list(missing.values()), graph=graph)
            results |= zip(missing, found, strict=True)
        self._results = {key: result for key, result in results.items() if not _passes(result)}
        return [results[_key(kg, graph, action)] for action in actions]


def _key(kg: str, graph: str | None, action: Action) -> str:
    return json.dumps([kg, graph, action.to_json()], sort_keys=True)


def _passes(result: ActionResult) -> bool:
    return isinstance(result, Failure) and result.kind.is_transient
