"""Questions in, answer documents out: bounded in number and in time."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor

from kbqa.kg.client import HttpGraphTools
from kbqa.telemetry import Metrics
from services.gateway.answers import answers_of, record, status_of, usage_of
from services.gateway.asking import Progress, ask
from services.gateway.errors import OverloadedError, RecipeMismatchError, RequestRefusedError
from services.gateway.policies import PolicySource
from services.gateway.schemas import Answer, AnswerRequest, AnswerResponse, AnswerStatus
from services.gateway.settings import GatewaySettings

logger = logging.getLogger(__name__)


class Answering:
    """Answers questions in threads of its own.

    No more than `settings.concurrency` at a time, no more waiting than `settings.queue`.
    A question whose time is over is answered with what there is; its thread ends with
    the turn that it is in, and keeps its place until then.
    """

    def __init__(
        self, settings: GatewaySettings, policies: PolicySource, tools: HttpGraphTools, metrics: Metrics
    ) -> None:
        self._settings, self._policies, self._tools = settings, policies, tools
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="question")
        self._places = settings.concurrency + settings.queue
        self._taken = 0  # touched by the event loop only
        self._running = metrics.gauge("kbqa_gateway_questions_running")
        self._answers = metrics.counter("kbqa_gateway_answers_total")
        self._seconds = metrics.histogram("kbqa_gateway_answer_seconds")
        self._tokens = metrics.counter("kbqa_gateway_tokens_total")

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: AnswerRequest) -> AnswerResponse:
        """Answer one question within its time.

        Raises:
            RequestRefusedError: it asks for more than is on offer.
            OverloadedError: too many are waiting.
            NoPolicyError, RecipeMismatchError: there is no policy, or not the one that is wanted.
            GraphNotFoundError, SubgraphNotFoundError, UnknownTopicEntityError, PromptTooLongError,
            GraphUnavailableError, PolicyUnavailableError: as `ask`.
        """
        timeout_s = self._check_bounds(request)
        started = time.monotonic()
        question_id = uuid.uuid4().hex
        progress = Progress(request.n_runs)
        version = await self._run(request, progress, question_id, started + timeout_s)
        response = _document(request, progress, question_id, version, (time.monotonic() - started) * 1000)
        self._observe(response)
        return response

    def _check_bounds(self, request: AnswerRequest) -> float:
        """The seconds that the question has."""
        limits = self._settings
        topics = request.topic_entities or ()
        if request.stream:
            raise RequestRefusedError("stream: not available yet; leave it out and the answer comes whole")
        for name, asked, most in (
            ("question: too many characters", len(request.question), limits.max_question_chars),
            ("n_runs", request.n_runs, limits.max_runs),
            ("max_turns", request.max_turns or 1, limits.max_turns),
            ("timeout_s", request.timeout_s or 0, limits.max_timeout_s),
            ("topic_entities: too many", len(topics), limits.max_topic_entities),
        ):
            if asked > most:
                raise RequestRefusedError(f"{name}: at most {most:g} is allowed here")
        return request.timeout_s or min(limits.timeout_s, limits.max_timeout_s)

    async def _run(
        self, request: AnswerRequest, progress: Progress, question_id: str, deadline: float
    ) -> str:
        """Wait for the question's thread, but not beyond the deadline; returns the policy's version."""
        if self._taken >= self._places:
            raise OverloadedError("too many questions are waiting: try again later")
        lease = self._policies.lease()
        served = lease.served
        if request.recipe not in (None, served.recipe):
            lease.release()
            raise RecipeMismatchError(str(request.recipe), served.recipe)
        future = self._threads.submit(
            ask,
            request,
            served,
            self._tools,
            progress,
            question_id=question_id,
            deadline=deadline,
            max_topic_entities=self._settings.max_topic_entities,
        )
        self._taken += 1
        self._running.inc()
        loop = asyncio.get_running_loop()

        def done(_: Future[None]) -> None:
            lease.release()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._free_place)

        future.add_done_callback(done)
        waiting = asyncio.wrap_future(future)
        finished, _ = await asyncio.wait([waiting], timeout=deadline - time.monotonic())
        if finished:
            waiting.result()
        else:
            waiting.cancel()  # only what has not begun is cancelled
        return served.version

    def _free_place(self) -> None:
        self._taken -= 1
        self._running.dec()

    def _observe(self, response: AnswerResponse) -> None:
        usage = response.usage
        self._answers.labels(response.status).inc()
        self._seconds.observe(usage.elapsed_ms / 1000)
        self._tokens.labels("prompt").inc(usage.prompt_tokens)
        self._tokens.labels("generated").inc(usage.generated_tokens)
        logger.info(
            "question answered",
            extra={
                "id": response.id,
                "kg": response.kg,
                "status": response.status,
                "policy_version": response.policy_version,
                "llm_calls": usage.llm_calls,
                "elapsed_ms": usage.elapsed_ms,
            },
        )


def _document(
    request: AnswerRequest, progress: Progress, question_id: str, version: str, elapsed_ms: float
) -> AnswerResponse:
    status: AnswerStatus = "no_topic_entity"
    runs, answers, topics = progress.runs(), list[Answer](), progress.topics
    if topics == ():
        runs = []
    else:
        answers = answers_of(runs, topics or ())
        status = status_of(runs, answers)
    return AnswerResponse(
        id=question_id,
        question=request.question,
        kg=request.kg,
        status=status,
        answers=answers,
        runs=[record(run) for run in runs],
        policy_version=version,
        usage=usage_of(runs, progress.kg_calls, elapsed_ms),
    )
