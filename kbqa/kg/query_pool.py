"""Killable SPARQL: a few processes that execute queries and die at the deadline."""

from __future__ import annotations

import json
import logging
import queue
import select
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from kbqa.errors import QueryError, QuerySyntaxError, QueryTimeoutError
from kbqa.kg.query_process import write_frame
from kbqa.kg.sparql import CheckedQuery, QueryResult, ResultFormat

logger = logging.getLogger(__name__)

_START_S = 30.0


class QueryPool:
    """Executes queries over on-disk stores in processes of their own.

    Processes start on first demand, are used again, and are replaced when killed.
    Safe to use from many threads; a caller waits while all processes are busy.

    Args:
        size: queries that run at the same time.
        max_rows: rows (or triples) of a result; what exceeds it is cut and flagged.
        max_bytes: size of a result, likewise; of its rows as JSON or N-Triples.
        memory_bytes: address space of a process; a query that needs more fails.
    """

    def __init__(
        self,
        size: int = 2,
        *,
        max_rows: int = 10_000,
        max_bytes: int = 16 * 2**20,
        memory_bytes: int = 2 * 2**30,
    ) -> None:
        self.max_rows, self.max_bytes = max_rows, max_bytes
        self._memory_bytes = memory_bytes
        self._closed = False
        self._lock = threading.Lock()
        # None stands for a process that is still to be started.
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(size):
            self._idle.put(None)

    def run(
        self, store: Path, query: CheckedQuery, result: ResultFormat, *, deadline_s: float
    ) -> QueryResult:
        """Execute a query over the store in a directory.

        Args:
            deadline_s: seconds for the query itself, from when a process takes it up;
                waiting for a process is bounded by as much again.

        Raises:
            QuerySyntaxError, QueryTimeoutError, QueryError: as `GraphStore.query`.
        """
        try:
            process = self._idle.get(timeout=deadline_s)
        except queue.Empty:
            raise QueryTimeoutError(
                f"no query process became free within {deadline_s:g} s: try again later"
            ) from None
        try:
            if process is None or not process.alive():
                process = _Process(self._memory_bytes)
            return process.execute(
                {
                    "path": str(store),
                    "query": query.text,
                    "format": result.value,
                    "max_rows": self.max_rows,
                    "max_bytes": self.max_bytes,
                    "deadline_s": deadline_s,
                },
                result,
            )
        finally:
            self._give_back(process)

    def close(self) -> None:
        """End the idle processes; those that are busy end with their query."""
        with self._lock:
            self._closed = True
        while True:
            try:
                process = self._idle.get_nowait()
            except queue.Empty:
                return
            if process is not None:
                process.kill()

    def _give_back(self, process: _Process | None) -> None:
        with self._lock:
            if not self._closed:
                self._idle.put(process)
                return
        if process is not None:
            process.kill()


class _Process:
    """One child: `execute` either answers or leaves it dead."""

    def __init__(self, memory_bytes: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "kbqa.kg.query_process", str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        try:
            self._read_frame(time.monotonic() + _START_S)
        except (EOFError, TimeoutError) as error:
            self.kill()
            raise QueryError(f"no query process could be started within {_START_S:g} s") from error

    def alive(self) -> bool:
        return self._child.poll() is None

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def execute(self, request: dict[str, object], result: ResultFormat) -> QueryResult:
        deadline_s = request["deadline_s"]
        assert isinstance(deadline_s, (int, float))
        deadline = time.monotonic() + deadline_s
        try:
            assert self._child.stdin is not None
            write_frame(self._child.stdin, json.dumps(request).encode())
            head = json.loads(self._read_frame(deadline))
            if "error" not in head:
                body = self._read_frame(deadline)
                return QueryResult(body, result, head["rows"], head["truncated"])
        except TimeoutError:
            self.kill()
            raise QueryTimeoutError(
                f"the query was stopped after {deadline_s:g} s: narrow it, for instance by a LIMIT"
            ) from None
        except (EOFError, BrokenPipeError):
            self.kill()
            logger.warning("query process died", extra={"returncode": self._child.returncode})
            raise QueryError("the query exhausted the memory or the stack that a query may use") from None
        if head["error"] == "syntax":
            raise QuerySyntaxError(head["message"])
        if head["error"] == "memory":
            self.kill()  # what it still holds would fail the next query, too
            raise QueryError("the query exhausted the memory that a query may use")
        raise QueryError(f"the query failed: {head['message']}")

    def _read_frame(self, deadline: float) -> bytes:
        size = struct.unpack(">I", self._read(4, deadline))[0]
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        pipe = self._child.stdout
        assert pipe is not None
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        chunks: list[bytes] = []
        while size > 0:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0 or not poll.poll(remaining_s * 1000):
                raise TimeoutError
            chunk = pipe.read(min(size, 1 << 20))
            if not chunk:
                raise EOFError
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)
