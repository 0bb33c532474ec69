"""Builds the trainer from its parts."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from celery import Celery
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from kbqa import __version__
from kbqa.errors import QueueUnavailableError
from kbqa.planning.guard import fitted
from kbqa.recipes import Recipe
from kbqa.runs.directory import Runs
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import DELIVER_TASK, TRAJECTORIES
from services.access.guard import KeyGuard
from services.access.sites import OwnSite
from services.broker import LARGEST_CLOCK_OFFSET_S, clock_offset_s, create_celery, require_broker
from services.consumer import consume, stop_consuming, work_on
from services.disks import expose_disks
from services.http import install, operations_app
from services.trainer.claim import QueueClaim
from services.trainer.depths import expose_depths
from services.trainer.errors import STATUS
from services.trainer.exports import exports_router
from services.trainer.exposition import expose_latest_run
from services.trainer.intake import Intake
from services.trainer.page import page_router
from services.trainer.routes import runs_router
from services.trainer.settings import TrainerSettings
from services.trainer.sinks import require_sinks
from services.trainer.supervisor import Supervisor, abandon

logger = logging.getLogger(__name__)

INTAKE_THREADS = 8
"""Replies that are stored at a time; they mostly wait for the disk, which flushes them together."""

_STAND_BY_S = 1.0  # between two attempts to take over


def create_app(settings: TrainerSettings) -> FastAPI:
    """The trainer of the runs under `settings.home`.

    If keys are required, `app.state.operations` is the application that serves probes and metrics on another
    port; otherwise it is None.

    Raises:
        ConfigurationError: the keys are invalid, or missing although other machines can reach the trainer.
    """
    keys = settings.accepted_keys()
    require_sinks(settings.sinks)
    metrics = Metrics(CollectorRegistry())
    runs = Runs(settings.home / "runs")
    intake = Intake(runs, metrics)
    celery = create_celery(
        "trainer", settings.broker_url, prefix=settings.queue_prefix, consumes=TRAJECTORIES
    )
    work_on(celery, TRAJECTORIES, DELIVER_TASK, intake.take)
    consumer = threading.Thread(
        target=consume,
        args=(celery, TRAJECTORIES),
        kwargs={"concurrency": INTAKE_THREADS, "drain_s": settings.drain_s},
        name="intake",
        daemon=True,
    )
    claim = QueueClaim(settings.broker_url, settings.queue_prefix, abandon)

    def fit(recipe: Recipe) -> Recipe:
        return fitted(recipe, settings.processes, settings.nodes)

    supervisor = Supervisor(runs, settings, metrics, _environment(settings), claim, fit)
    expose_latest_run(metrics, runs)
    expose_depths(metrics, settings.broker_url, settings.queue_prefix)
    expose_disks(metrics, settings)

    ending = threading.Event()
    standing_by: str | None = None  # for whom

    def begin() -> bool:
        """Begin to work, unless another trainer does; returns whether this one does."""
        nonlocal standing_by
        why = supervisor.take_over()
        if why is None:
            intake.sweep()
            consumer.start()
            supervisor.resume_interrupted()
        elif why != standing_by:
            logger.warning("standing by", extra={"reason": why})
        standing_by = why
        return why is None

    def stand_by() -> None:
        while not ending.wait(_STAND_BY_S) and not begin():
            pass

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        successor = threading.Thread(target=stand_by, name="successor", daemon=True)
        if not await asyncio.to_thread(begin):
            successor.start()
        yield
        ending.set()
        if successor.is_alive():
            await asyncio.to_thread(successor.join)
        # At the same time, so that the grace period of a pod need cover one of them only.
        deadline = time.monotonic() + settings.drain_s
        stop_consuming()
        await asyncio.to_thread(supervisor.close)
        if consumer.is_alive():
            await asyncio.to_thread(consumer.join, max(0.0, deadline - time.monotonic()))

    def why_not_ready() -> str | None:
        return standing_by or _why_not_ready(celery, consumer)

    app = FastAPI(
        title="trainer",
        summary="Trains policies by reinforcement learning, one run at a time",
        version=__version__,
        lifespan=lifespan,
    )
    if keys is not None:
        app.add_middleware(KeyGuard, keys=keys)
    app.add_middleware(OwnSite, hosts=settings.hosts(keys), origins=settings.allowed_hosts)
    install(
        app,
        service="trainer",
        metrics=metrics,
        readiness=why_not_ready,
        errors=STATUS,
        open_metrics=keys is None,
    )
    app.state.operations = None if keys is None else operations_app(metrics, why_not_ready)
    store = settings.policies()
    app.include_router(runs_router(runs, supervisor, store, settings.data_directory, settings.reach, fit))
    app.include_router(page_router(runs, store))
    app.include_router(exports_router(runs, settings.home))
    return app


def _why_not_ready(celery: Celery, consumer: threading.Thread) -> str | None:
    if not consumer.is_alive():
        return "the consumer of replies is not running"
    try:
        require_broker(celery)
        ahead_s = clock_offset_s(celery) or 0.0
    except QueueUnavailableError as error:
        return str(error)
    if abs(ahead_s) > LARGEST_CLOCK_OFFSET_S:  # workers would take requests for expired
        return f"the clock is {ahead_s:+.0f} s off the broker's: synchronise it (NTP)"
    return None


def _environment(settings: TrainerSettings) -> dict[str, str]:
    """Environment of the training process: this process's, with settings that its command line may change."""
    return {
        # On a busy machine, threads that spin while they wait slow each other down many times over.
        "OMP_WAIT_POLICY": "PASSIVE",
        **os.environ,
        "KBQA_BROKER_URL": settings.broker_url,
        "KBQA_KG_SERVER_URL": settings.kg_server_url,
        "KBQA_LOG_LEVEL": settings.log_level,
        "KBQA_LOG_FORMAT": settings.log_format,
    }
