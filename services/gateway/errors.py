"""The gateway's own errors, and which HTTP status each domain error has here."""

from __future__ import annotations

import logging

from kbqa.errors import (
    GraphError,
    GraphNotFoundError,
    GraphUnavailableError,
    KbqaError,
    NoPolicyError,
    PolicyError,
    PolicyUnavailableError,
)
from services.gateway.events import ErrorEvent, Problem
from services.http import domain_problem

logger = logging.getLogger(__name__)


class RequestRefusedError(KbqaError):
    """A request is well-formed but asks for what is not on offer; says what is."""


class RecipeMismatchError(KbqaError):
    """The promoted policy was trained with another recipe than the request names."""

    def __init__(self, wanted: str, promoted: str) -> None:
        super().__init__(
            f'the policy was trained with the recipe "{promoted}", not "{wanted}": leave `recipe` out, '
            "or promote a run of the other recipe with kbqa promote RUN"
        )


class UnknownTopicEntityError(KbqaError):
    """A topic entity that the request names is not in the graph."""

    def __init__(self, entities: list[str], kg: str) -> None:
        names = ", ".join(f'"{entity[:200]}"' for entity in entities)
        super().__init__(
            f'not in the graph "{kg}": {names}; name topic entities by id or exact label, '
            "or leave `topic_entities` out to have them found in the question"
        )


class SubgraphNotFoundError(KbqaError):
    """No per-question subgraph has the id that the request names."""

    def __init__(self, graph: str, kg: str) -> None:
        super().__init__(f'the graph "{kg}" has no per-question subgraph "{graph[:200]}": leave `graph` out')


class PromptTooLongError(KbqaError):
    """The question and its topic entities do not fit into the policy's context."""

    def __init__(self, tokens: int, most: int) -> None:
        super().__init__(
            f"the question takes {tokens} tokens with its topic entities, and this policy reads fewer than "
            f"{most}: ask a shorter question, or name fewer topic entities"
        )


class OverloadedError(KbqaError):
    """As many questions as may wait are waiting; there may be a place after `retry_after_s`."""

    def __init__(self, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"too many questions are waiting: try again in {retry_after_s:.0f} s")


STATUS: dict[type[KbqaError], int] = {
    RequestRefusedError: 422,
    RecipeMismatchError: 409,
    UnknownTopicEntityError: 422,
    SubgraphNotFoundError: 404,
    PromptTooLongError: 422,
    OverloadedError: 429,
    GraphNotFoundError: 404,
    GraphUnavailableError: 503,
    GraphError: 500,
    NoPolicyError: 503,
    PolicyUnavailableError: 503,
    PolicyError: 500,
}


def problem_event(error: Exception) -> ErrorEvent:
    """What ends a stream that has begun; the problem that the error would have been as an answer."""
    if isinstance(error, KbqaError):
        return ErrorEvent(problem=Problem(**domain_problem(error, STATUS)))
    logger.error("a stream failed", exc_info=error)
    detail = "internal error; the server's log has the details"
    return ErrorEvent(
        problem=Problem(type="about:blank", title="Internal Server Error", status=500, detail=detail)
    )
