"""Security headers, which restrict what browsers may do with the gateway's responses."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from services.page.site import HEADERS

# FastAPI's documentation pages load scripts from a CDN and show only our own schema.
_DOCS_PATHS = frozenset({"/docs", "/redoc"})
_DOCS_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; style-src 'unsafe-inline' "
    "https://cdn.jsdelivr.net; img-src data: https://fastapi.tiangolo.com; connect-src 'self'; "
    "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_EVERYWHERE = {
    **{name.lower(): value for name, value in HEADERS.items() if name != "Cache-Control"},
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}


class SecurityHeaders:
    """ASGI middleware that adds the headers to every response, unless the response sets them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def add(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["path"] in _DOCS_PATHS:
                    headers["content-security-policy"] = _DOCS_POLICY
                for name, value in _EVERYWHERE.items():
                    headers.setdefault(name, value)
                # A response to one key must not be cached for another.
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, add)
