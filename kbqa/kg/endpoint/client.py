"""The SPARQL 1.1 Protocol over HTTP, bounded in time and size, with retries where they are safe.

Requests run on an event loop in a separate thread. Only there does a deadline hold whatever
the server does: refuse, stay silent, or send one byte per second forever.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import threading
import time
import weakref
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, NoReturn

import httpx

from kbqa.errors import (
    GraphError,
    GraphUnavailableError,
    QueryError,
    QueryMemoryError,
    QueryOverloadError,
    QuerySyntaxError,
    QueryTimeoutError,
)
from kbqa.kg.endpoint.record import AuthKind, Endpoint

# Waits between attempts: doubled each time up to the longest, each shortened at random by up to half.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_CONNECT_S = 2.0
# After a failed connection, requests fail at once for this long, so that a batch of a thousand
# actions does not try a thousand times.
_PAUSE_S = 1.0
# Retries after a broken connection: the query itself may have broken the server.
_RESENT = 1
# The server's time limit is this share of ours, so that it gives up first and the connection survives.
_SERVER_SHARE = 0.95
_MAX_ERROR_BYTES = 1 << 16

_OVERLOADED = frozenset({429, 502, 503, 504})
# Virtuoso under load, most often after a restart. Its SQLSTATE may be 00000 then.
_DEADLOCK = "SR172:"
_VIRTUOSO_ERROR = re.compile(r"Virtuoso (\w{5}) Error (.*)", re.DOTALL)
_TOO_LONG = re.compile(
    r"tim(ed?|ing)[ -]?out|estimated execution time|took too long|cancell?ed|interrupted", re.IGNORECASE
)
_TOO_LARGE = re.compile(r"out of memory|memory limit|tried to allocate|too large", re.IGNORECASE)
# Servers repeat the query after the error message.
_REPEATED_QUERY = re.compile(r"\n\s*SPARQL query:.*", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """A server's answer with a success status.

    Attributes:
        body: cut to the requested maximum size.
        complete: whether `body` is the whole answer.
        max_rows: the server's row limit, if it reports one.
        server: the Server header.
    """

    body: bytes
    media_type: str
    complete: bool
    max_rows: int | None
    server: str


class EndpointClient:
    """Queries one endpoint over a pool of connections; safe for many threads.

    The client is closed when nobody references it any more. Credentials are read from the
    environment for every request and appear in no message.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="sparql-endpoint", daemon=True)
        self._thread.start()
        self._http = httpx.AsyncClient(
            trust_env=False,
            # Loading the trusted certificates takes a while and is not needed for http.
            verify=endpoint.url.startswith("https:"),
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            limits=httpx.Limits(
                max_connections=endpoint.connections, max_keepalive_connections=endpoint.connections
            ),
            headers={"User-Agent": "kbqa", "Accept-Encoding": "identity"},
        )
        self._places = asyncio.Semaphore(endpoint.connections)
        self._unreachable_until = 0.0
        self._closing = weakref.finalize(self, _close, self._loop, self._http)

    def close(self) -> None:
        self._closing()
        self._thread.join()

    def ask(self, query: str, accept: str, *, deadline_s: float, max_bytes: int) -> EndpointAnswer:
        """Send a query and read its answer.

        A server that cannot be reached, is overloaded (429, 502 to 504), closes the connection or gave
        the query up because of a deadlock is asked again, with growing waits, until the deadline.

        Raises:
            GraphUnavailableError: the server does not answer, or not as a SPARQL server does.
            QuerySyntaxError, QueryTimeoutError, QueryMemoryError, QueryError: the server's error.
            QueryOverloadError: all connections were busy until the deadline, or queries blocked each other.
        """
        if time.monotonic() < self._unreachable_until:
            raise self._unavailable("could not be reached a moment ago")
        if not self._closing.alive:
            raise self._unavailable("was closed")
        sending = self._ask(query, accept, deadline_s, max_bytes)
        future = asyncio.run_coroutine_threadsafe(sending, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise self._unavailable("was closed while it was asked") from None
        finally:
            future.cancel()

    async def _ask(self, query: str, accept: str, deadline_s: float, max_bytes: int) -> EndpointAnswer:
        progress = _Progress()
        try:
            async with asyncio.timeout(deadline_s) as deadline, self._places:
                progress.begun = True
                ends_at = deadline.when()
                assert ends_at is not None
                return await self._until_answered(query, accept, ends_at, max_bytes, progress)
        except TimeoutError:
            if not progress.begun:
                raise QueryOverloadError(
                    f"all {self._endpoint.connections} connections to {self._endpoint.url} were busy "
                    f"for {deadline_s:g} s: try again later"
                ) from None
            if progress.unreachable and not progress.sent:  # the last attempt began just before the deadline
                self._unreachable_until = time.monotonic() + _PAUSE_S
                raise self._unavailable("cannot be reached in time") from None
            raise QueryTimeoutError(
                f"the query was given up after {deadline_s:g} s: narrow it, for instance by a LIMIT"
            ) from None

    async def _until_answered(
        self, query: str, accept: str, ends_at: float, max_bytes: int, progress: _Progress
    ) -> EndpointAnswer:
        resent = 0
        for tries in itertools.count():
            remaining_s, progress.sent = ends_at - self._loop.time(), False
            try:
                return await self._once(query, accept, remaining_s, max_bytes, progress)
            except _Passing as passing:
                problem, wait_s = passing, passing.retry_after_s
            progress.unreachable = problem.unreachable
            resent += problem.broken
            wait_s = max(wait_s, min(_FIRST_WAIT_S * 2**tries, _LONGEST_WAIT_S) * random.uniform(0.5, 1))
            if resent > _RESENT or self._loop.time() + wait_s >= ends_at:
                if problem.unreachable:
                    self._unreachable_until = time.monotonic() + _PAUSE_S
                raise problem.error from None
            await asyncio.sleep(wait_s)
        raise AssertionError

    async def _once(
        self, query: str, accept: str, remaining_s: float, max_bytes: int, progress: _Progress
    ) -> EndpointAnswer:
        # A policy may emit half of a surrogate pair, which UTF-8 cannot carry.
        form: dict[str, Any] = {"query": query.encode("utf-8", "replace").decode()}
        if self._endpoint.default_graphs:
            form["default-graph-uri"] = list(self._endpoint.default_graphs)
        form |= self._endpoint.server.time_limit(remaining_s * _SERVER_SHARE)
        # Shorter than the deadline, so that a host that drops packets is reported as unreachable.
        timeout = httpx.Timeout(None, connect=min(_CONNECT_S, 0.9 * max(remaining_s, 0.01)))
        try:
            request = self._http.build_request(
                "POST",
                self._endpoint.url,
                data=form,
                headers={"Accept": accept},
                timeout=timeout,
                extensions={"trace": progress.trace},
            )
            response = await self._http.send(request, stream=True, auth=self._auth())
            try:
                body, complete = await _read(response, max_bytes if response.is_success else _MAX_ERROR_BYTES)
            finally:
                await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _Passing(
                self._unavailable(f"cannot be reached ({_reason(error)})"), unreachable=True
            ) from None
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            raise _Passing(
                self._unavailable(f"broke the connection ({_reason(error)})"), broken=True
            ) from None
        except httpx.HTTPError as error:
            raise self._unavailable(f"cannot be queried ({_reason(error)})") from None
        if not response.is_success:
            self._raise(response, body)
        state = response.headers.get("x-sql-state", "")
        if state:
            # Virtuoso cuts results at its time limit, even if they look complete.
            self._raise_virtuoso(state, response.headers.get("x-sql-message", ""))
        if response.headers.get("content-encoding", "identity") != "identity":
            raise self._unavailable(
                "compresses its answers although it was not asked to; this cannot be limited safely"
            )
        max_rows = response.headers.get("x-sparql-maxrows", "")
        return EndpointAnswer(
            body,
            response.headers.get("content-type", "").partition(";")[0].strip().lower(),
            complete,
            int(max_rows) if max_rows.isascii() and max_rows.isdigit() else None,
            response.headers.get("server", ""),
        )

    def _auth(self) -> httpx.Auth | None:
        endpoint = self._endpoint
        if endpoint.auth is None:
            return None
        secret = os.environ.get(endpoint.secret_variable)
        if not secret:
            raise self._unavailable(
                f"needs a secret: set the environment variable {endpoint.secret_variable}"
            )
        if endpoint.auth is AuthKind.BASIC:
            return httpx.BasicAuth(endpoint.user, secret)
        return (
            httpx.DigestAuth(endpoint.user, secret) if endpoint.auth is AuthKind.DIGEST else _Bearer(secret)
        )

    def _raise(self, response: httpx.Response, body: bytes) -> NoReturn:
        status, message = response.status_code, _message(body)
        if response.is_redirect:
            raise self._unavailable(f"redirects to {response.headers['location']}: attach that URL instead")
        if status in (401, 403, 407):
            raise self._unavailable(f"rejects the credentials ({status}): attach it with the right ones")
        if status == 404:
            raise self._unavailable("is not a SPARQL endpoint (404): attach it with the right URL")
        virtuoso = _VIRTUOSO_ERROR.search(message)
        if virtuoso is not None:
            self._raise_virtuoso(virtuoso[1], virtuoso[2])
        if status == 400:
            raise QuerySyntaxError(message or "the endpoint says that the query does not parse")
        if _TOO_LONG.search(message):
            raise QueryTimeoutError(f"the endpoint stopped the query: {message}")
        if status in _OVERLOADED:
            error = self._unavailable(
                f"answers {status}, also when asked again: {message or 'no reason given'}"
            )
            raise _Passing(error, retry_after_s=_seconds(response.headers.get("retry-after", "")))
        if _TOO_LARGE.search(message):
            raise QueryMemoryError(f"the query needs more memory than the endpoint gives: {message}")
        raise QueryError(f"the endpoint failed ({status}): {message or 'no reason given'}")

    def _raise_virtuoso(self, state: str, message: str) -> NoReturn:
        if state == "37000":
            raise QuerySyntaxError(message)
        if message.startswith(_DEADLOCK):
            error = QueryOverloadError(
                f"the endpoint gave the query up for other queries ({message}): try again later"
            )
            raise _Passing(error)
        if state.startswith("S1T") or _TOO_LONG.search(message):
            raise QueryTimeoutError("the endpoint stopped the query at its time limit: narrow it")
        if _TOO_LARGE.search(message):
            raise QueryMemoryError(f"the query needs more memory than the endpoint gives: {message}")
        raise QueryError(f"the endpoint failed: {message}")

    def _unavailable(self, what: str) -> GraphUnavailableError:
        return GraphUnavailableError(f"the SPARQL endpoint {self._endpoint.url} {what}")


@dataclass(slots=True)
class _Progress:
    """How far a request has come.

    Attributes:
        begun: it has one of the connections.
        unreachable: the attempt before did not reach the server.
        sent: the newest attempt has reached it.
    """

    begun: bool = False
    unreachable: bool = False
    sent: bool = False

    async def trace(self, event: str, _: object) -> None:
        """Take an event of httpcore."""
        self.sent |= event.endswith(".send_request_headers.started")


class _Passing(Exception):
    """A transient failure; `error` is raised if retries do not help."""

    def __init__(
        self,
        error: GraphError,
        *,
        unreachable: bool = False,
        broken: bool = False,
        retry_after_s: float = 0.0,
    ) -> None:
        self.error, self.unreachable, self.broken = error, unreachable, broken
        self.retry_after_s = retry_after_s
        super().__init__(str(error))


class _Bearer(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


async def _read(response: httpx.Response, max_bytes: int) -> tuple[bytes, bool]:
    """The body, cut at `max_bytes`, and whether it is complete."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]), False
    return bytes(body), True


def _message(body: bytes) -> str:
    """The message in an error's body as one line, without the repeated query."""
    text = body.decode("utf-8", "replace")
    try:
        document = json.loads(text)
        if isinstance(document, dict):
            text = str(document.get("exception") or document.get("message") or document.get("error") or text)
    except ValueError:
        pass
    return " ".join(_TAG.sub(" ", _REPEATED_QUERY.sub("", text)).split())[:300]


def _seconds(retry_after: str) -> float:
    try:
        return max(float(retry_after), 0.0)
    except ValueError:
        return 0.0


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _close(loop: asyncio.AbstractEventLoop, http: httpx.AsyncClient) -> None:
    """Stop the loop without waiting, since the garbage collector may call this in the loop's own thread."""

    async def close() -> None:
        requests = asyncio.all_tasks() - {asyncio.current_task()}
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        await http.aclose()
        loop.stop()

    loop.call_soon_threadsafe(lambda: loop.create_task(close()))
