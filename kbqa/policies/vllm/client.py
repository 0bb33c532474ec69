"""JSON over HTTP to one server, with thousands of exchanges in flight on the event loop of one thread.

vLLM stops computing a completion when its connection is closed, so an exchange that nobody waits for is
cancelled.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from kbqa.errors import ConfigurationError, PolicyUnavailableError

_CONNECT_TIMEOUT_S = 3.0
_IDLE_S = 4.0  # vLLM closes a connection that was idle for 5 s
_MOST_BYTES = 64 * 2**20  # of an answer, unless the caller knows better

Answer = tuple[int, bytes]
"""The status and the body of an answer."""


class Client:
    """Exchanges with one server; safe for many threads.

    Args:
        url: `http://host:port`.
        max_in_flight: maximum submitted exchanges that the server works on at a time; others wait here.

    Raises:
        ConfigurationError: the URL is not of this form.
    """

    def __init__(self, url: str, *, max_in_flight: int) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme != "http" or not parts.hostname or port is None or parts.path.strip("/"):
            raise ConfigurationError(f"KBQA_VLLM_URL: {url!r} is not of the form http://host:port")
        self.url = url.rstrip("/")
        self._room = asyncio.Semaphore(max_in_flight)
        self._session: aiohttp.ClientSession | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm-client", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a session that is left open complains when the interpreter ends

    def submit(
        self, method: str, path: str, body: Mapping[str, Any], *, timeout_s: float, max_bytes: int
    ) -> Future[Answer]:
        """Begin an exchange; cancelling its future closes its connection.

        Args:
            timeout_s: maximum seconds from sending the request to the end of the answer. Time that it waits
                for its turn does not count.
            max_bytes: maximum bytes of the answer.

        Raises:
            PolicyUnavailableError: the client is closed. The future raises it if there is no answer, or a
                longer one.
        """
        return self._schedule(self._in_turn(method, path, _encoded(body), timeout_s, max_bytes))

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float
    ) -> tuple[int, Any]:
        """An exchange that does not wait for others: its status, and the JSON value (or text) of the answer.

        Raises:
            PolicyUnavailableError: there is no answer, or a very long one.
        """
        exchange = self._exchange(method, path, _encoded(body), timeout_s, _MOST_BYTES)
        try:
            return decoded(self._schedule(exchange).result())
        except CancelledError as error:
            raise PolicyUnavailableError(f"the client of vLLM at {self.url} was closed") from error

    def close(self) -> None:
        """Cancel what is in flight, and close all connections."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self.close)
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _schedule(self, exchange: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        with self._lock:
            if not self._closed:
                return asyncio.run_coroutine_threadsafe(exchange, self._loop)
        exchange.close()
        raise PolicyUnavailableError(f"the client of vLLM at {self.url} is closed")

    async def _in_turn(
        self, method: str, path: str, body: bytes | None, timeout_s: float, max_bytes: int
    ) -> Answer:
        async with self._room:
            return await self._exchange(method, path, body, timeout_s, max_bytes)

    async def _exchange(
        self, method: str, path: str, body: bytes | None, timeout_s: float, max_bytes: int
    ) -> Answer:
        try:
            async with asyncio.timeout(timeout_s):
                # The server may have closed the connection just before it was used again.
                with suppress(aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError):
                    return await self._send(method, path, body, max_bytes)
                return await self._send(method, path, body, max_bytes)
        except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
            reason = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else error
            raise PolicyUnavailableError(
                f"vLLM at {self.url} does not answer {path} ({reason!s}): start it, or correct KBQA_VLLM_URL"
            ) from error

    async def _send(self, method: str, path: str, body: bytes | None, max_bytes: int) -> Answer:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
                # A few compressed bytes may become any number.
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        data = bytearray()
        async with self._session.request(method, self.url + path, data=body) as response:
            async for chunk in response.content.iter_any():
                data += chunk
                if len(data) > max_bytes:
                    raise PolicyUnavailableError(
                        f"vLLM at {self.url} answers {path} with more than {max_bytes} bytes: check what "
                        "answers there (KBQA_VLLM_URL)"
                    )
        return response.status, bytes(data)

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()


def decoded(answer: Answer) -> tuple[int, Any]:
    """An answer's status, and its JSON value (its text, if it is not JSON)."""
    status, data = answer
    try:
        return status, json.loads(data)
    except (ValueError, RecursionError):
        return status, data.decode("utf-8", "replace")


def _encoded(body: Mapping[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body).encode()
