"""Builds the rollout worker from its parts."""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass
from functools import partial

import torch
from celery import Celery
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from transformers.utils.logging import disable_progress_bar

from kbqa import __version__
from kbqa.errors import GraphError, MessageError, QueueUnavailableError
from kbqa.kg.client import HttpGraphTools
from kbqa.kg.tools import ListedGraphTools
from kbqa.policies.vllm import VllmServer
from kbqa.policy_store import PolicyStore
from kbqa.retries import retry
from kbqa.runs.executor import Patience, RolloutExecutor
from kbqa.serving.engine import Engine
from kbqa.serving.hosting import Host, InProcess, OnVllm
from kbqa.telemetry.logs import log_context
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import (
    DELIVER_TASK,
    ROLL_OUT_TASK,
    ROLLOUTS,
    TRAJECTORIES,
    FailureReason,
    RolloutFailure,
    RolloutReply,
    RolloutRequest,
    Timings,
    decode,
    encode,
)
from services.broker import LARGEST_CLOCK_OFFSET_S, clock_offset_s, create_celery, require_broker, send
from services.consumer import consume, on_termination, pause_consuming, stop_consuming, work_on
from services.disks import expose_disks
from services.engine_metrics import relay_engine_metrics
from services.http import background, install
from services.rollout_worker.settings import RolloutWorkerSettings
from services.rollout_worker.standing import Standing

logger = logging.getLogger(__name__)


def run_worker(
    settings: RolloutWorkerSettings, host: Host | None = None, graphs: ListedGraphTools | None = None
) -> None:
    """Process rollout requests until SIGTERM; then finish running requests or return them to the queue.

    Args:
        host: makes engines instead of the one in the settings.
        graphs: graphs instead of those of the kg_server.

    Raises:
        PortInUseError: another process listens on the port.
    """
    torch.set_num_threads(settings.threads)
    disable_progress_bar()
    celery = create_celery(
        "rollout_worker",
        settings.broker_url,
        prefix=settings.queue_prefix,
        consumes=ROLLOUTS,
        visibility_timeout_s=settings.visibility_timeout_s,
    )
    metrics = Metrics(CollectorRegistry())
    served = HttpGraphTools(settings.kg_server_url, api_key=settings.kg_server_api_key)
    tools = graphs or served
    store = settings.policies()
    engine = Engine(store, metrics, host or _host(settings, metrics, store))
    patience = Patience(
        settings.policy_wait_s, settings.graph_wait_s, settings.rollout_timeout_s, settings.longest_rollout_s
    )
    executor = RolloutExecutor(engine, tools, patience, f"{socket.gethostname()}-{os.getpid()}")
    standing = Standing(metrics, partial(pause_consuming, ROLLOUTS))
    handler = RequestHandler(executor, celery, metrics, standing, settings.deliver_wait_s)
    work_on(celery, ROLLOUTS, ROLL_OUT_TASK, handler.take)
    web = create_app(celery, tools, engine, metrics, standing)
    expose_disks(metrics, settings)
    if settings.engine == "vllm":
        relay_engine_metrics(web, settings.vllm_urls)
    try:
        with background(web, settings.host, settings.port) as url, on_termination(stop_consuming):
            logger.info("waiting for rollout requests", extra={"url": url, "worker": handler.worker})
            drained = consume(celery, ROLLOUTS, concurrency=settings.concurrency, drain_s=settings.drain_s)
            if not drained:
                logger.warning(
                    "unfinished requests are returned to the queue", extra={"drain_s": settings.drain_s}
                )
                # Otherwise their threads would still reply, and the interpreter would wait for them.
                os._exit(0)
    finally:
        engine.close()
        served.close()


def _host(settings: RolloutWorkerSettings, metrics: Metrics, store: PolicyStore) -> Host:
    if settings.engine == "transformers":
        return InProcess(settings.max_rows, searches=False)
    servers = [
        VllmServer(
            url,
            update_timeout_s=settings.vllm_update_timeout_s,
            max_in_flight=settings.vllm_max_in_flight,
        )
        for url in settings.vllm_urls
    ]
    return OnVllm(
        servers,
        metrics,
        precision=settings.vllm_precision,
        timeout_s=settings.vllm_timeout_s,
        patience_s=settings.policy_wait_s,
        sender=settings.sender(),
        verify=store.verify,
    )


def create_app(
    celery: Celery, graphs: ListedGraphTools, engine: Engine, metrics: Metrics, standing: Standing
) -> FastAPI:
    """The application of probes and metrics; work arrives through the queue."""

    def why_not_ready() -> str | None:
        try:
            require_broker(celery)
            graphs.graphs()
        except (QueueUnavailableError, GraphError) as error:
            return str(error)
        return standing.unready() or engine.unready()

    app = FastAPI(title="rollout_worker", summary="Plays and scores episodes", version=__version__)
    install(app, service="rollout_worker", metrics=metrics, readiness=why_not_ready, errors={})
    return app


@dataclass(slots=True)
class _Outcome:
    """The labels under which a message is counted."""

    purpose: str = "unknown"
    outcome: str = "invalid"


class RequestHandler:
    """Takes messages from one queue and puts replies into the other."""

    def __init__(
        self,
        executor: RolloutExecutor,
        celery: Celery,
        metrics: Metrics,
        standing: Standing,
        deliver_wait_s: float,
    ) -> None:
        self._executor, self._celery, self._deliver_wait_s = executor, celery, deliver_wait_s
        self._standing = standing
        self._requests = metrics.counter("kbqa_rollout_requests_total")
        self._running = metrics.gauge("kbqa_rollout_requests_running")
        self._queue_seconds = metrics.histogram("kbqa_rollout_queue_seconds")
        self._seconds = metrics.histogram("kbqa_rollout_seconds")
        self._policy_seconds = metrics.histogram("kbqa_rollout_policy_seconds")
        self._engine_seconds = metrics.histogram("kbqa_rollout_engine_seconds")
        self._graph_seconds = metrics.histogram("kbqa_rollout_graph_seconds")
        self._tokens = metrics.counter("kbqa_rollout_generated_tokens_total")
        self._unjudged = metrics.counter("kbqa_rollout_unjudged_total")
        self._capped = metrics.counter("kbqa_rollout_capped_total")
        self._timed_out = metrics.counter("kbqa_rollout_trees_timed_out_total")
        self._lost = metrics.counter("kbqa_rollout_lost_total")
        self._undelivered = metrics.counter("kbqa_rollout_undelivered_total")

    @property
    def worker(self) -> str:
        return self._executor.worker

    def take(self, message: str) -> None:
        """Answer a request.

        Raises:
            MessageError: the message is not a rollout request.
        """
        count = _Outcome()
        try:
            with self._running.track_inprogress():
                self._take(message, count)
        finally:
            self._requests.labels(count.purpose, count.outcome).inc()

    def _take(self, message: str, count: _Outcome) -> None:
        request = decode(RolloutRequest, message)
        count.purpose = request.purpose
        now = time.time()
        self._queue_seconds.observe(max(0.0, now - request.sent_at))
        with log_context(run=request.run, request=request.request_id):
            if now <= request.expires_at:
                reply = self._executor.execute(request)
            elif (failure := self._clock_failure()) is not None:
                reply = self._executor.refuse(request, failure)
            else:
                count.outcome = "expired"  # the trainer has sent it again, or no longer needs it
                return
            if reply.failure is None:
                count.outcome = "answered"
                self._standing.answered()
            else:
                count.outcome = reply.failure.reason
                self._standing.failed(reply.failure)
            if reply.rollout is not None:
                self._time(request, reply.timings)
            self._tokens.inc(reply.sampled_tokens)
            if reply.tree is not None:
                tree = reply.tree.tree
                self._capped.inc(sum(tree.steps[leaf].status is None for leaf in tree.leaves))
                self._timed_out.inc(tree.timed_out)
            self._lost.inc(reply.lost)
            if reply.group is not None:
                self._unjudged.inc(request.n - reply.lost - len(reply.group.members))
            self._deliver(reply)

    def _clock_failure(self) -> RolloutFailure | None:
        """Why this machine cannot tell whether a request has expired; None if it can."""
        try:
            ahead_s = clock_offset_s(self._celery)
        except QueueUnavailableError:
            return None
        if ahead_s is None or abs(ahead_s) <= LARGEST_CLOCK_OFFSET_S:
            return None
        detail = f"the clock is {ahead_s:+.0f} s off the broker's: synchronise it (NTP)"
        return RolloutFailure(reason=FailureReason.CLOCK_OFF, detail=detail)

    def _time(self, request: RolloutRequest, timings: Timings) -> None:
        self._seconds.labels(request.purpose).observe(timings.rollout_s)
        self._policy_seconds.labels(request.purpose).observe(timings.policy_s)
        self._engine_seconds.labels(request.purpose).observe(timings.engine_s)
        self._graph_seconds.labels(request.purpose).observe(timings.graph_s)

    def _deliver(self, reply: RolloutReply) -> None:
        try:
            text = encode(reply)
        except MessageError as error:
            detail = f"{error}: lower rollout.n or rollout.max_tokens of the recipe"
            failure = RolloutFailure(reason=FailureReason.INTERNAL, detail=detail)
            text = encode(reply.model_copy(update={"group": None, "tree": None, "failure": failure}))
        try:
            retry(
                partial(send, self._celery, TRAJECTORIES, DELIVER_TASK, text),
                on=QueueUnavailableError,
                patience_s=self._deliver_wait_s,
                first_pause_s=0.5,
                longest_pause_s=5.0,
            )
        except QueueUnavailableError as error:
            # The trainer sends the request again after its deadline.
            self._undelivered.inc()
            logger.error("reply not delivered", extra={"reason": str(error)})
