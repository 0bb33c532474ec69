"""Request ids: logs, the response and requests to other services carry the id of the request."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from kbqa.telemetry.logs import log_context
from kbqa.tracing import REQUEST_ID_HEADER, span

# A client's request id ends up in logs and headers; only this form of it is accepted.
_ACCEPTED = re.compile(r"[A-Za-z0-9._:+/=-]{1,128}")


class Correlation:
    """ASGI middleware that accepts or creates `X-Request-ID`, and opens the span of a request.

    Args:
        unmeasured: frequently polled paths, which get no id and no span.
    """

    def __init__(self, app: ASGIApp, unmeasured: Collection[str]) -> None:
        self._app, self._unmeasured = app, unmeasured

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._unmeasured:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(REQUEST_ID_HEADER, "")
        request_id = given if _ACCEPTED.fullmatch(given) else uuid.uuid4().hex
        status = 0

        async def watch(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with (
            log_context(request_id=request_id),
            span(scope["method"], "server", incoming=headers, request_id=request_id) as current,
        ):
            try:
                await self._app(scope, receive, watch)
            finally:
                if current is not None:
                    route = getattr(scope.get("route"), "path", "unmatched")
                    current.update_name(f"{scope['method']} {route}")
                    current.set_attribute("http.response.status_code", status)
