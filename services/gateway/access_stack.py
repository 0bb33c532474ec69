"""Builds access control and the stores of answers and feedback from the settings."""

from __future__ import annotations

import logging

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from kbqa.conversation import ChatRewriter
from kbqa.feedback import FeedbackFile, feedback_path
from kbqa.kg.actions import GraphTools
from kbqa.telemetry.metrics import Metrics
from kbqa.tracing import REQUEST_ID_HEADER
from services.access.counts import Counts
from services.access.keys import KeyFile, Keys
from services.access.sites import is_loopback
from services.gateway.access.audit import AuditLog
from services.gateway.access.control import AccessControl, Callers, Quotas
from services.gateway.access.headers import SecurityHeaders
from services.gateway.access.settings import AccessSettings
from services.gateway.answering import Answering
from services.gateway.chat_problems import ChatProblems
from services.gateway.conversations import Conversations
from services.gateway.idempotency import IdempotentAnswers
from services.gateway.question_service import QuestionService
from services.gateway.saved import SavedAnswers
from services.gateway.sessions import Sessions
from services.gateway.shelves import AnswerShelf, MemoryShelf, RedisShelf
from services.gateway.usage import UsageLedger, usage_path

logger = logging.getLogger(__name__)

_PREFLIGHT_S = 600  # how long browsers may cache the CORS permission of a site


class AccessStack:
    """Keys, counts, the audit log, the cost of keys, saved answers and feedback.

    Raises:
        ConfigurationError: the keys cannot be read, the audit log cannot be written, or the URL of Redis
            is invalid.
    """

    def __init__(self, settings: AccessSettings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self.callers = Callers(
            _keys(settings),
            rate=settings.rate,
            quota=settings.quota,
            min_confidence=settings.min_confidence,
        )
        self._counts = Counts(
            settings.redis_url,
            metrics.counter("kbqa_gateway_redis_failures_total"),
            without_redis=settings.counts_without_redis,
            timeout_s=settings.redis_timeout_s,
        )
        self._audit = AuditLog(
            settings.audit_log, questions=settings.audit_questions, max_bytes=settings.audit_mb * 2**20
        )
        self._shelf = _shelf(settings, metrics)
        self.saved = SavedAnswers(self._shelf, settings.answers_ttl_s)
        self.usage = UsageLedger(usage_path(settings.home), metrics)
        self.feedback = FeedbackFile(
            settings.feedback_file or feedback_path(settings.home), settings.feedback_mb * 2**20
        )

    def service(
        self, answering: Answering, tools: GraphTools, rewriter: ChatRewriter | None = None
    ) -> QuestionService:
        """The service that handles questions.

        Args:
            tools: for the names in conversations, and labels in other languages.
            rewriter: writes complete questions instead of the rules.
        """
        sessions = Sessions(self._shelf, self._settings.answers_ttl_s)
        idempotent = IdempotentAnswers(self._shelf, self.saved)
        return QuestionService(
            answering,
            Quotas(self._counts, self._metrics),
            self.saved,
            idempotent,
            Conversations(sessions, tools, rewriter),
            tools,
            self.usage,
        )

    def add_access_control(self, app: FastAPI, page: list[BaseRoute]) -> None:
        """Check every request; call this before other middleware is added to `app`.

        Args:
            page: routes of the page's files.
        """
        settings = self._settings
        app.add_middleware(
            AccessControl,
            callers=self.callers,
            open_routes=page if settings.open_page else [],
            counts=self._counts,
            audit=self._audit,
            metrics=self._metrics,
        )

    def add_headers(self, app: FastAPI) -> None:
        """Add security headers to every response; call this last, so that it wraps everything."""
        app.add_middleware(ChatProblems)
        app.add_middleware(SecurityHeaders)
        if self._settings.cors_origins:
            # Credentials stay disallowed: a page of another site sends its own key.
            app.add_middleware(
                CORSMiddleware,
                allow_origins=self._settings.cors_origins,
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["Authorization", "Content-Type", "Idempotency-Key", REQUEST_ID_HEADER],
                expose_headers=["Retry-After", REQUEST_ID_HEADER],
                max_age=_PREFLIGHT_S,
            )

    async def close(self) -> None:
        await self.usage.close()
        await self._counts.close()
        await self._shelf.close()
        self._audit.close()


def _keys(settings: AccessSettings) -> Keys | None:
    path = settings.keys_path
    required = path.exists() if settings.require_keys is None else settings.require_keys
    if not required:
        if not is_loopback(settings.host):
            logger.warning(
                "this gateway answers everybody who can reach it: create a key (kbqa keys create NAME) and "
                "restart it",
                extra={"host": settings.host},
            )
        return None
    if not path.exists():
        logger.warning("keys are required, but no key exists yet", extra={"path": str(path)})
    return Keys(KeyFile(path))


def _shelf(settings: AccessSettings, metrics: Metrics) -> AnswerShelf:
    room = settings.answers_mb * 2**20
    if settings.redis_url is None:
        return MemoryShelf(settings.answers_kept, room)
    return RedisShelf(
        settings.redis_url,
        "kbqa:gateway",
        settings.answers_kept,
        room,
        metrics,
        timeout_s=settings.redis_timeout_s,
    )
