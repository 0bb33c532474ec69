"""The gateway's own errors, and the HTTP status of each domain error in this service."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kbqa.client.events import ErrorEvent, Problem
from kbqa.errors import (
    ConversationError,
    FeedbackFullError,
    GraphError,
    GraphNotFoundError,
    GraphUnavailableError,
    KbqaError,
    NoPolicyError,
    PolicyError,
    PolicyRefusedError,
    PolicyUnavailableError,
)
from services.gateway.access.errors import GATEWAY_ACCESS_STATUS
from services.gateway.page.reports import ReportNotFoundError
from services.http import domain_problem
from services.page.trajectories import GroupNotFoundError

logger = logging.getLogger(__name__)


class RequestRefusedError(KbqaError):
    """A request is well-formed but asks for something that is not available; the message says what is."""


class RecipeMismatchError(KbqaError):
    """The policy that answers was trained with another recipe than the request names."""

    def __init__(self, wanted: str, promoted: str) -> None:
        super().__init__(
            f'the policy was trained with the recipe "{promoted}", not "{wanted}": leave `recipe` out, '
            "or promote a run of the other recipe with kbqa promote RUN"
        )


class UnknownDatasetError(KbqaError):
    """No graph stands for the `dataset` of a TEXT2SPARQL request."""

    def __init__(self, dataset: str, known: Sequence[str]) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(
            f'no graph stands for the dataset "{dataset[:200]}" (known: {listed}): map it to one with '
            "KBQA_GATEWAY_DATASETS=URI=GRAPH"
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
    """Too many questions are waiting; there may be a place after `retry_after_s`."""

    def __init__(self, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"too many questions are waiting: try again in {retry_after_s:.0f} s")


class ShelfUnavailableError(KbqaError):
    """Redis, which keeps answers, does not answer."""

    retry_after_s = 5.0

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"earlier answers cannot be looked up now ({reason}): try again later, "
            "or ask again without an Idempotency-Key"
        )


class IdempotencyMismatchError(KbqaError):
    """An Idempotency-Key was used before with another request."""

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was used with a different request: use a new one for each request"
        )


class AnswerNotFoundError(KbqaError):
    """No answer with this id is available to the caller."""

    def __init__(self, id_: str, ttl_s: int) -> None:
        super().__init__(
            f'no answer "{id_[:64]}" was given to this key in the last {ttl_s} s: ask the question again'
        )


class SessionNotFoundError(KbqaError):
    """No session with this id belongs to the caller."""

    def __init__(self, id_: str, ttl_s: int) -> None:
        super().__init__(
            f'no session "{id_[:64]}" of this key had a question in the last {ttl_s} s: '
            'ask the complete question, with "session": "new" to begin another'
        )


class BatchNotFoundError(KbqaError):
    """The caller has no batch with this id."""

    def __init__(self, id_: str) -> None:
        super().__init__(
            f'this key has no batch "{id_[:64]}": it was deleted, or has expired; GET /v1/batches lists them'
        )


class BatchDamagedError(KbqaError):
    """The file of a batch's answers holds something else."""

    def __init__(self, id_: str) -> None:
        super().__init__(
            f"the answers of the batch {id_} are damaged: delete it, and send its questions again"
        )


class BatchRefusedError(KbqaError):
    """A batch has no line, or more than are allowed."""


class TooManyBatchesError(KbqaError):
    """A key has as many batches as are kept for it."""

    def __init__(self, kept: int) -> None:
        super().__init__(f"this key has {kept} batches already: fetch the answers of one and delete it")


STATUS: dict[type[KbqaError], int] = {
    **GATEWAY_ACCESS_STATUS,
    ShelfUnavailableError: 503,
    IdempotencyMismatchError: 422,
    AnswerNotFoundError: 404,
    SessionNotFoundError: 404,
    ConversationError: 422,
    BatchNotFoundError: 404,
    BatchDamagedError: 500,
    BatchRefusedError: 422,
    TooManyBatchesError: 409,
    FeedbackFullError: 507,
    RequestRefusedError: 422,
    RecipeMismatchError: 409,
    UnknownDatasetError: 404,
    UnknownTopicEntityError: 422,
    SubgraphNotFoundError: 404,
    PromptTooLongError: 422,
    OverloadedError: 429,
    GraphNotFoundError: 404,
    GraphUnavailableError: 503,
    GraphError: 500,
    NoPolicyError: 503,
    PolicyUnavailableError: 503,
    PolicyRefusedError: 502,
    PolicyError: 500,
    ReportNotFoundError: 404,
    GroupNotFoundError: 404,
}


def problem_event(error: Exception) -> ErrorEvent:
    """The event that ends a started stream; it contains the problem document of the error."""
    if isinstance(error, KbqaError):
        return ErrorEvent(problem=Problem(**domain_problem(error, STATUS)))
    logger.error("a stream failed", exc_info=error)
    detail = "internal error; the server's log has the details"
    return ErrorEvent(
        problem=Problem(type="about:blank", title="Internal Server Error", status=500, detail=detail)
    )
