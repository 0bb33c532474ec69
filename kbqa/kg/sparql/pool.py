"""Killable SPARQL: a few processes that execute queries and are killed at the deadline."""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kbqa.errors import (
    GraphUnavailableError,
    QueryError,
    QueryLostError,
    QueryMemoryError,
    QueryOverloadError,
    QuerySyntaxError,
    QueryTimeoutError,
)
from kbqa.kg.sparql.dialect import lenient
from kbqa.kg.sparql.guard import CheckedQuery, QueryResult, ResultFormat

logger = logging.getLogger(__name__)

_START_S = 30.0
# Signals sent from outside; death by any other signal was caused by the query.
_FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})


class QueryPool:
    """Executes queries over on-disk stores in separate processes.

    Processes start on demand (or by `warm`), are reused, and are replaced in the background
    after they were killed. Safe for many threads; a caller waits while all processes are busy.

    Args:
        size: number of processes, hence of queries that run at the same time.
        max_rows: maximum rows (or triples) of a result; a larger result is cut and flagged.
        max_bytes: maximum size of the rows as JSON, or of the triples as N-Triples, likewise.
        memory_bytes: address space of a process; a query that needs more fails.
        observe: receives the seconds of each execution, without the wait for a process.
    """

    def __init__(
        self,
        size: int = 2,
        *,
        max_rows: int = 10_000,
        max_bytes: int = 16 * 2**20,
        memory_bytes: int = 2 * 2**30,
        observe: Callable[[float], None] | None = None,
    ) -> None:
        self._observe = observe
        self.size, self.max_rows, self.max_bytes = size, max_rows, max_bytes
        self._memory_bytes = memory_bytes
        self._closed = False
        self._lock = threading.Lock()
        # None stands for a process that has not been started.
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(size):
            self._idle.put(None)

    def run(
        self, store: Path, query: CheckedQuery, result: ResultFormat, *, deadline_s: float
    ) -> QueryResult:
        """Execute a query over the store in a directory.

        Args:
            deadline_s: seconds for the execution; the wait for a free process is bounded by
                the same time.

        Raises:
            QueryOverloadError: no process became free in time.
            QuerySyntaxError, QueryTimeoutError, QueryMemoryError, QueryLostError, QueryError:
                as `GraphStore.query`.
            GraphUnavailableError: the store cannot be read.
        """
        return self._run(str(store), query, result, deadline_s)

    def parse(self, query: CheckedQuery, *, deadline_s: float) -> None:
        """Parse a query without executing it over a store.

        Args:
            deadline_s: as for `run`.

        Raises:
            QuerySyntaxError: the query does not parse; the message says where.
            QueryOverloadError, QueryTimeoutError, QueryMemoryError, QueryLostError: whether it parses is
                not known.
        """
        self._run(None, query, query.default_format, deadline_s)

    def _run(
        self, store: str | None, query: CheckedQuery, result: ResultFormat, deadline_s: float
    ) -> QueryResult:
        rewriting = lenient(query)
        try:
            process = self._idle.get(timeout=deadline_s)
        except queue.Empty:
            raise QueryOverloadError(
                f"no query process became free within {deadline_s:g} s: try again later", deadline_s
            ) from None
        started = None
        try:
            if process is not None and not process.alive():
                process.reap()
                process = None
            if process is None:
                process = _Process(self._memory_bytes)
            started = time.monotonic()
            return process.execute(
                {
                    "path": store,
                    "query": rewriting.text,
                    "format": result.value,
                    "max_rows": self.max_rows,
                    "max_bytes": self.max_bytes,
                    "deadline_s": deadline_s,
                },
                result,
            )
        except QuerySyntaxError as error:
            raise QuerySyntaxError(rewriting.in_source(str(error))) from None
        finally:
            if started is not None and self._observe is not None:
                self._observe(time.monotonic() - started)
            self._give_back(process)

    def warm(self) -> None:
        """Start the processes that are not started yet, so that no query has to wait for one."""
        for _ in range(self.size):
            if self._take_unstarted():
                self._start()

    def _take_unstarted(self) -> bool:
        # One at a time: the others stay available for queries, which can start them too.
        with self._idle.mutex:
            if None not in self._idle.queue:
                return False
            self._idle.queue.remove(None)
            return True

    def close(self) -> None:
        """End the idle processes; busy ones end after their query."""
        with self._lock:
            self._closed = True
        while True:
            try:
                process = self._idle.get_nowait()
            except queue.Empty:
                return
            if process is not None:
                process.kill()
                process.reap()

    def _give_back(self, process: _Process | None) -> None:
        if process is not None and process.spent:
            # In the background, since ending a process that holds gigabytes and starting one take time.
            threading.Thread(target=self._replace, args=(process,), daemon=True).start()
            return
        with self._lock:
            if not self._closed:
                self._idle.put(process)
                return
        if process is not None:
            process.kill()
            process.reap()

    def _replace(self, process: _Process) -> None:
        process.kill()
        process.reap()
        if not self._closed:
            self._start()

    def _start(self) -> None:
        try:
            self._give_back(_Process(self._memory_bytes))
        except (QueryError, OSError):
            logger.exception("no query process could be started; the next query tries again")
            self._give_back(None)


class _Process:
    """One child process; `execute` either gets an answer or kills it.

    Attributes:
        spent: whether it must be replaced: it was killed, died, or holds too much memory.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.spent = False
        self._memory_bytes = memory_bytes
        self._child = subprocess.Popen(
            [sys.executable, "-m", "kbqa.kg.sparql.process", str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # An arena for each thread would reserve most of the address space that a query may use.
            env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(self._stdin, False)
        try:
            self._read_frame(time.monotonic() + _START_S)
        except (EOFError, TimeoutError) as error:
            self.kill()
            self.reap()
            raise QueryLostError("no query process could be started: send the query again") from error

    def alive(self) -> bool:
        return self._child.poll() is None

    def kill(self) -> None:
        self.spent = True
        self._child.kill()

    def reap(self) -> None:
        """Wait for its end and close its pipes."""
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def execute(self, request: dict[str, object], result: ResultFormat) -> QueryResult:
        deadline_s = request["deadline_s"]
        assert isinstance(deadline_s, (int, float))
        deadline = time.monotonic() + deadline_s
        try:
            self._write_frame(json.dumps(request).encode(), deadline)
            head = json.loads(self._read_frame(deadline))
            body = self._read_frame(deadline) if "error" not in head else b""
        except TimeoutError:
            self.kill()
            raise QueryTimeoutError(
                f"the query was stopped after {deadline_s:g} s: narrow it, for instance by a LIMIT"
            ) from None
        except (EOFError, BrokenPipeError):
            raise self._death() from None
        # Memory that the process still holds would make the next query fail, too.
        self.spent = head["held_bytes"] > self._memory_bytes / 2
        if "error" not in head:
            return QueryResult(body, result, head["rows"], head["truncated"])
        if head["error"] == "syntax":
            raise QuerySyntaxError(head["message"])
        if head["error"] == "memory":
            self.spent = True
            raise QueryMemoryError("the query exhausted the memory that a query may use: narrow it")
        if head["error"] == "store":
            raise GraphUnavailableError(f"the graph's store cannot be read: {head['message']}")
        raise QueryError(f"the query failed: {head['message']}")

    def _death(self) -> QueryError:
        self.kill()
        self._child.wait()
        returncode = self._child.returncode
        logger.warning("query process died", extra={"returncode": returncode})
        if returncode in _FROM_OUTSIDE:
            return QueryLostError("the query's process was killed by somebody else: send the query again")
        return QueryMemoryError("the query exhausted the memory or the stack that a query may use")

    def _write_frame(self, payload: bytes, deadline: float) -> None:
        # Non-blocking, since a process that was stopped does not read from a full pipe.
        left = memoryview(struct.pack(">I", len(payload)) + payload)
        while left:
            _wait_for(self._stdin, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._stdin, left) :]
            except BlockingIOError:
                continue

    def _read_frame(self, deadline: float) -> bytes:
        size = struct.unpack(">I", self._read(4, deadline))[0]
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        chunks: list[bytes] = []
        while size > 0:
            _wait_for(self._stdout, select.POLLIN, deadline)
            chunk = os.read(self._stdout, min(size, 1 << 20))
            if not chunk:
                raise EOFError
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


def _wait_for(descriptor: int, event: int, deadline: float) -> None:
    remaining_s = deadline - time.monotonic()
    poll = select.poll()
    poll.register(descriptor, event)
    if remaining_s <= 0 or not poll.poll(remaining_s * 1000):
        raise TimeoutError
