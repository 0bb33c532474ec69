"""JSON over HTTP to one server: persistent connections, and exchanges that can be abandoned.

A completion is one exchange whose answer may take a minute. Hundreds run at a time, and vLLM stops
computing one when its connection is closed. Hence the standard library's plain connections: a
connection pool costs more per exchange, and cannot close a connection that a thread is reading.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from kbqa.errors import ConfigurationError, PolicyUnavailableError

_CONNECT_TIMEOUT_S = 3.0
_IDLE_S = 4.0  # vLLM closes a connection that was idle for 5 s


class Connections:
    """Idle connections to one server; safe for many threads.

    Args:
        url: `http://host:port`.

    Raises:
        ConfigurationError: the URL is not of this form.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme != "http" or not parts.hostname or port is None or parts.path.strip("/"):
            raise ConfigurationError(f"KBQA_VLLM_URL: {url!r} is not of the form http://host:port")
        self.url = url.rstrip("/")
        self._address = parts.hostname, port
        # The connection used last is used next, so that surplus connections age and are closed.
        self._idle: deque[tuple[float, http.client.HTTPConnection]] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def idle(self) -> http.client.HTTPConnection | None:
        """A connection that was used before; the server may have closed it since."""
        with self._lock:
            return self._idle.pop()[1] if self._idle else None

    def fresh(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self._address, timeout=_CONNECT_TIMEOUT_S)
        connection.connect()
        return connection

    def put_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next exchange, and close those that were idle for too long."""
        now = time.monotonic()
        with self._lock:
            self._idle.append((now, connection))
            while self._idle and (self._closed or now - self._idle[0][0] > _IDLE_S):
                self._idle.popleft()[1].close()

    def close(self) -> None:
        """Close idle connections now, and each busy one once it is put back."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop()[1].close()


class Exchange:
    """One request and its answer.

    Args:
        timeout_s: maximum seconds for which the server may send nothing.
    """

    def __init__(
        self,
        connections: Connections,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float,
    ) -> None:
        self._connections, self._method, self._path = connections, method, path
        self._body = None if body is None else json.dumps(body).encode()
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._abandoned = False

    def abandon(self) -> None:
        """End the exchange from another thread; the server notices and stops working on it."""
        with self._lock:
            self._abandoned = True
            if self._socket is not None:
                # Wakes the thread that reads, which closing would not.
                with suppress(OSError):  # the server has closed it already
                    self._socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> tuple[int, Any]:
        """The answer's status, and its JSON value (its text, if it is not JSON).

        Raises:
            PolicyUnavailableError: there is no answer, or it was abandoned.
        """
        try:
            if (known := self._connections.idle()) is not None:
                with suppress(ConnectionError):  # closed by the server while it was idle
                    return self._run_on(known)
            return self._run_on(self._connections.fresh())
        except (OSError, http.client.HTTPException) as error:
            reason = f"no answer within {self._timeout_s:g} s" if isinstance(error, TimeoutError) else error
            raise PolicyUnavailableError(
                f"vLLM at {self._connections.url} does not answer {self._path} ({reason!s}): "
                "start it, or correct KBQA_VLLM_URL"
            ) from error

    def _run_on(self, connection: http.client.HTTPConnection) -> tuple[int, Any]:
        try:
            self._begin(connection)
            headers = {"Content-Type": "application/json"} if self._body is not None else {}
            connection.request(self._method, self._path, self._body, headers)
            response = connection.getresponse()
            data = response.read()
        except BaseException:
            self._end()
            connection.close()
            raise
        self._end()
        if response.will_close:
            connection.close()
        else:
            self._connections.put_back(connection)
        return response.status, _document(data)

    def _begin(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if self._abandoned:
                raise PolicyUnavailableError(f"{self._path} was abandoned")
            connection.sock.settimeout(self._timeout_s)
            self._socket = connection.sock

    def _end(self) -> None:
        with self._lock:
            self._socket = None


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")
