"""The HTTP parts that all services share: probes, metrics, problem documents, serving.

    app = FastAPI(title="kg_server")
    install(app, service="kg_server", metrics=metrics, readiness=why_not_ready, errors=STATUS)
    serve(app, "127.0.0.1", 8001)

`install` adds `/healthz` (the process runs), `/readyz` (it can do its work) and `/metrics`. It measures every
request, gives it an id, and answers every failure with an `application/problem+json` document (RFC 9457).
Each service decides the HTTP status of a domain error, in a table in its `errors.py`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from http import HTTPStatus
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, ProcessCollector, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from kbqa.errors import ConfigurationError, KbqaError, PortInUseError, QueueUnavailableError
from kbqa.telemetry.metrics import Metrics
from services.correlation import Correlation

logger = logging.getLogger(__name__)

# Returns None if the service can do its work, otherwise the reason why not.
Readiness = Callable[[], str | None]

LOOPBACK = ("127.0.0.1", "::1")

_PROBLEM = "application/problem+json"
# Longer than proxies keep a connection (nginx: 60 s). A request over a connection that is being closed here
# gets no answer.
_KEEP_ALIVE_S = 75
_READINESS_S = 1.0  # for which readiness is remembered
_UNMEASURED_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})


def install(
    app: FastAPI,
    *,
    service: str,
    metrics: Metrics,
    readiness: Readiness,
    errors: Mapping[type[KbqaError], int],
    open_metrics: bool = True,
) -> None:
    """Add probes, `/metrics`, request metrics and problem documents to `app`.

    Args:
        service: the service's name in metrics.
        metrics: the metrics that `/metrics` shows.
        readiness: called by `/readyz` in a worker thread; returns None, or why the service is not ready.
        errors: HTTP status of each domain error; a subclass inherits the status of its nearest ancestor. The
            `retry_after_s` of an error is sent as a header.
        open_metrics: whether `app` itself serves `/metrics`; otherwise `operations_app` does, on another
            port.
    """
    ProcessCollector(registry=metrics.registry)  # memory and processor time of this process
    _add_operations(app, metrics if open_metrics else None, readiness)

    def on_domain_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, KbqaError)
        response = domain_response(error, errors)
        if response.status_code >= 500:
            logger.error("request failed", extra={"path": request.url.path, "error": str(error)})
        return response

    def on_http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem(error.status_code, str(error.detail), headers=error.headers)

    def on_invalid_request(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        details = [_complaint(e["loc"], e["msg"]) for e in error.errors()]
        malformed = any(e["type"] == "json_invalid" for e in error.errors())
        return problem(400 if malformed else 422, "; ".join(details), kind="invalid-request")

    def on_unexpected_error(_request: Request, _error: Exception) -> Response:
        # Starlette raises the error again after this response, and uvicorn logs it.
        return problem(500, "internal error; the server's log has the details")

    app.add_exception_handler(KbqaError, on_domain_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(Exception, on_unexpected_error)
    app.add_middleware(_RequestMetrics, service=service, metrics=metrics)
    app.add_middleware(Correlation, unmeasured=_UNMEASURED_ROUTES)


def operations_app(metrics: Metrics, readiness: Readiness) -> FastAPI:
    """Only probes and `/metrics`, for a separate port if the service's own port requires keys."""
    app = FastAPI(title="operations", docs_url=None, redoc_url=None, openapi_url=None)
    _add_operations(app, metrics, readiness)
    return app


def _add_operations(app: FastAPI, metrics: Metrics | None, readiness: Readiness) -> None:
    @app.get("/healthz", tags=["operations"], summary="Liveness: the process runs")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    kept = _KeptReadiness(readiness)

    @app.get("/readyz", tags=["operations"], summary="Readiness: the service can do its work")
    async def readyz() -> Response:
        reason = await kept.reason()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return problem(503, reason, kind="not-ready")

    if metrics is not None:
        registry = metrics.registry

        @app.get(
            "/metrics", tags=["operations"], summary="Prometheus metrics", response_class=PlainTextResponse
        )
        def exposition() -> Response:
            return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class _KeptReadiness:
    """A service's readiness, found out at most once at a time and once a second.

    Anybody may ask for it, so it must cost next to nothing; finding it out may call another service, from a
    thread that requests need.
    """

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._asked: asyncio.Task[str | None] | None = None
        self._until = 0.0

    async def reason(self) -> str | None:
        if self._asked is None or (self._asked.done() and time.monotonic() >= self._until):
            self._asked = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asked)

    async def _ask(self) -> str | None:
        try:
            return await asyncio.to_thread(self._readiness)
        finally:
            self._until = time.monotonic() + _READINESS_S


def _complaint(place: Sequence[str | int], message: str) -> str:
    """Pydantic's message about a place in the body, without its preface; invalid JSON has no place."""
    where = ".".join(str(part) for part in place)
    return ": ".join(part for part in (where, message.removeprefix("Value error, ")) if part)


def problem(
    status: int, detail: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """A problem document (RFC 9457).

    Args:
        detail: what went wrong and what to do next, for the user.
        kind: machine-readable name in kebab case, which becomes the document's `type`.
    """
    return JSONResponse(_document(status, detail, kind), status, headers, media_type=_PROBLEM)


def domain_problem(error: KbqaError, errors: Mapping[type[KbqaError], int]) -> dict[str, Any]:
    """The problem document of a domain error, for use inside another response.

    Args:
        errors: as in `install`.
    """
    status = next((errors[cls] for cls in type(error).__mro__ if cls in errors), 500)
    return _document(status, str(error), error_kind(type(error)))


def domain_response(error: KbqaError, errors: Mapping[type[KbqaError], int]) -> JSONResponse:
    """The response to a request that failed with a domain error.

    An error with a `retry_after_s` gets a `Retry-After` header; status 401 gets `WWW-Authenticate`.
    """
    document = domain_problem(error, errors)
    headers = {}
    if (wait_s := getattr(error, "retry_after_s", None)) is not None:
        headers["Retry-After"] = str(math.ceil(wait_s))
    if document["status"] == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(document, document["status"], headers, media_type=_PROBLEM)


def _document(status: int, detail: str, kind: str | None) -> dict[str, Any]:
    return {
        "type": f"urn:kbqa:problem:{kind}" if kind else "about:blank",
        "title": _reason_phrase(status),
        "status": status,
        "detail": detail,
    }


async def read_body(request: Request, max_bytes: int, timeout_s: float | None = None) -> bytes:
    """Read a request's body.

    Args:
        timeout_s: seconds within which the whole body must arrive; None for no limit.

    Raises:
        HTTPException: 413 as soon as the body is known to be too large, 408 after the timeout, 400 if the
            client disconnects.
    """
    too_large = HTTPException(413, f"the body is larger than {max_bytes} bytes: send less at a time")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large
    chunks, size = [], 0
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise too_large
                chunks.append(chunk)
    except ClientDisconnect as error:
        raise HTTPException(400, "the connection was closed before the body had arrived") from error
    except TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive within {timeout_s:g} s") from error
    return b"".join(chunks)


def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    drain_s: int = 10,
    beside: tuple[ASGIApp, int] | None = None,
    proxies: Sequence[str] = LOOPBACK,
) -> None:
    """Serve `app` in this thread until SIGTERM or SIGINT, then let running requests end.

    Args:
        drain_s: seconds after which running requests are aborted.
        beside: another application (`operations_app`) and the port on which it is served meanwhile.
        proxies: addresses and networks whose `X-Forwarded-For` names the client.

    Raises:
        PortInUseError: another process listens on the port.
        ConfigurationError: it is impossible to listen on this address, or the application does not start.
    """
    listener = _listen(host, port)
    logger.info("listening", extra={"url": _url(listener)})
    with listener, background(beside[0], host, beside[1]) if beside is not None else nullcontext():
        try:
            _Server(_config(app, drain_s, proxies)).run(sockets=[listener])
        except SystemExit as error:
            raise ConfigurationError("the application did not start; the log above says why") from error


@contextmanager
def background(
    app: ASGIApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    drain_s: int = 2,
    proxies: Sequence[str] = LOOPBACK,
) -> Iterator[str]:
    """Serve `app` from a thread while the block runs; yields its base URL.

    For tests, and for processes whose main thread does something else (a Celery worker). Port 0 takes any
    free port.

    Raises:
        PortInUseError, ConfigurationError: as `serve`.
    """
    with _listen(host, port) as listener:
        server = _Server(_config(app, drain_s, proxies))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
        thread.start()
        while not server.started:
            if not thread.is_alive():
                raise ConfigurationError("the application did not start; the log above says why")
            time.sleep(0.005)
        try:
            yield _url(listener)
        finally:
            server.should_exit = True
            thread.join()


def exit_code(run: Callable[[], object]) -> int:
    """Run a process to its end. A domain error becomes one line on standard error, without a stack trace.

    SIGTERM ends the process at once until it serves: the first process of a container ignores signals that
    it does not handle.

    Returns:
        0 at a normal end; 2 for a wrong setting, a port in use or a broker that does not answer; 1 for any
        other `KbqaError`.
    """
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        run()
    except (ConfigurationError, QueueUnavailableError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KbqaError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


class _Server(uvicorn.Server):
    """Uvicorn without raising the signal again after its shutdown, so that a drained process ends with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _config(app: ASGIApp, drain_s: int, proxies: Sequence[str]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=drain_s,
        timeout_keep_alive=_KEEP_ALIVE_S,
        forwarded_allow_ips=list(proxies),
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(host, port) from error
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def error_kind(error: type[KbqaError]) -> str:
    """GraphNotFoundError → graph-not-found."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", error.__name__.removesuffix("Error")).lower()


def _reason_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


class _RequestMetrics:
    """Counts and times every request by its route's template, never by its raw path."""

    def __init__(self, app: ASGIApp, service: str, metrics: Metrics) -> None:
        self._app, self._service = app, service
        self._requests = metrics.counter("kbqa_http_requests_total")
        self._seconds = metrics.histogram("kbqa_http_request_seconds")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def watch(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            if route not in _UNMEASURED_ROUTES:
                self._requests.labels(self._service, scope["method"], route, str(status)).inc()
                self._seconds.labels(self._service, route).observe(time.perf_counter() - started)
