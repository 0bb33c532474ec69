"""Runs in one process: no queue, no worker, nothing that could get lost."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client import CollectorRegistry

from kbqa.kg.tools import ListedGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.runs.context import Context
from kbqa.runs.directory import RunDirectory
from kbqa.runs.executor import Patience, RolloutExecutor
from kbqa.runs.journal import Journal
from kbqa.serving.engine import Engine
from kbqa.serving.hosting import InProcess
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import RolloutReply, RolloutRequest

_PATIENCE = Patience(policy_s=60.0, graph_s=60.0, rollout_s=600.0)
_ROWS = 64  # completions computed at a time

Execute = Callable[[RolloutRequest], RolloutReply]


@contextmanager
def open_run(
    directory: RunDirectory,
    tools: ListedGraphTools,
    data: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Context]:
    """A run whose rollouts are played in this process; `kbqa.runs.training.train` takes it to its end.

    Its policies are kept beside `runs`, in `policies`, as services do.

    Args:
        data: directory of data sets that are not generated.
        clock: see `Context`.
    """
    record, home = directory.read(), directory.path.parent.parent
    recipe, store = record.resolved_recipe(), PolicyStore(home / "policies")
    engine = Engine(store, Metrics(CollectorRegistry()), InProcess(_ROWS, searches=False))
    executor = RolloutExecutor(engine, tools, _PATIENCE, "local")
    source = LocalSource(executor.execute, recipe.schedule.max_in_flight)
    try:
        yield Context(
            directory=directory,
            record=record,
            recipe=recipe,
            store=store,
            tools=tools,
            journal=Journal(directory),
            rollouts=source,
            stop=threading.Event(),
            home=home,
            data=data,
            clock=clock,
        )
    finally:
        source.close()
        engine.close()


class LocalSource:
    """Plays requests in threads.

    Args:
        execute: plays and scores one, and never raises: `RolloutExecutor.execute`.
        width: requests played at a time.
    """

    def __init__(self, execute: Execute, width: int) -> None:
        self._execute = execute
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="rollout")

    def open(self, kind: str, *, spent: Callable[[str], bool], deadline_s: float) -> LocalRollouts:
        return LocalRollouts(self._threads, self._execute)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)


class LocalRollouts:
    """The port `Rollouts` over a thread pool."""

    def __init__(self, threads: ThreadPoolExecutor, execute: Execute) -> None:
        self._threads, self._execute = threads, execute
        self._played: queue.SimpleQueue[RolloutReply] = queue.SimpleQueue()
        self._renewed = 0
        self._later: list[tuple[float, RolloutRequest]] = []  # requests, and when they are due

    @property
    def counters(self) -> dict[str, int]:
        return {"resent": 0, "renewed": self._renewed, "duplicates": 0}

    def ask(self, request: RolloutRequest) -> None:
        self._threads.submit(self._execute, request).add_done_callback(self._keep)

    def ask_anew(self, request: RolloutRequest, after_s: float = 0.0) -> None:
        self._renewed += 1
        self._later.append((time.monotonic() + after_s, request))

    def receive(self, wait_s: float) -> list[RolloutReply]:
        now = time.monotonic()
        due = [request for at, request in self._later if at <= now]
        self._later = [(at, request) for at, request in self._later if at > now]
        for request in due:
            self.ask(request)
        replies = []
        with suppress(queue.Empty):
            replies.append(self._played.get(timeout=wait_s))
            while True:
                replies.append(self._played.get_nowait())
        return replies

    def give_up(self) -> list[str]:
        return []

    def release(self) -> Callable[[], None]:
        """As `Rollouts.release`: nothing is kept of what was received."""
        return lambda: None

    def _keep(self, played: Future[RolloutReply]) -> None:
        if not played.cancelled():
            self._played.put(played.result())
