"""The terms on which a recipe asks a graph: how long its queries may run, and what relations are compared by.

A worker serves runs of many recipes through one client, so the terms go along with each action, as arguments
that every action takes. A graph in this process and a kg_server treat them alike.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbqa.errors import ConfigurationError
from kbqa.kg.actions import Action, ActionResult, ErrorKind, Failure, GraphTools
from kbqa.kg.handlers import OTHER_ENCODER
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.specs import Cost

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GraphTerms:
    """How a graph is asked.

    Attributes:
        query_timeout_s: seconds that a query may run, as far as the server allows; None for its default.
        encoder: name of the model by which relations and types have to be compared, such as
            Qwen/Qwen3-Embedding-0.6B; None accepts the server's, whichever it is.
    """

    query_timeout_s: float | None = None
    encoder: str | None = None

    def over(self, tools: GraphTools) -> GraphTools:
        """The tools on these terms."""
        return tools if self == GraphTerms() else _AgreedTools(tools, self)

    def added_to(self, action: Action) -> Action:
        """The action with these terms; a look-up in memory needs none."""
        spec = ACTIONS.find(action.name)
        if spec is None or spec.cost_of(action.arguments) is Cost.LOOK_UP:
            return action
        terms: Mapping[str, Any] = {"timeout_s": self.query_timeout_s, "encoder": self.encoder}
        given = {name: value for name, value in terms.items() if value is not None}
        return replace(action, arguments={**given, **action.arguments})


class _AgreedTools:
    """`GraphTools` that ask on a recipe's terms."""

    def __init__(self, tools: GraphTools, terms: GraphTerms) -> None:
        self._tools, self._terms = tools, terms
        self._warned = False

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        """As `GraphTools.execute`.

        Raises:
            ConfigurationError: the server compares relations by another encoder.
        """
        results = self._tools.execute(kg, [self._terms.added_to(action) for action in actions], graph=graph)
        for result in results:
            if isinstance(result, Failure):
                self._check(kg, result)
        return results

    def _check(self, kg: str, failed: Failure) -> None:
        if failed.details.get("reason") == OTHER_ENCODER:
            raise ConfigurationError(f"{kg}: {failed.message}")
        allowed, asked = failed.details.get("timeout_s"), self._terms.query_timeout_s
        if failed.kind is not ErrorKind.QUERY_TIMEOUT or allowed is None or asked is None or self._warned:
            return
        if allowed < asked:
            self._warned = True
            logger.warning(
                "kg_server stopped a query earlier than the recipe allows: set "
                "KBQA_KG_SERVER_QUERY_DEADLINE_MAX_S to graph.query_timeout_s",
                extra={"kg": kg, "allowed_s": allowed, "asked_s": asked},
            )
