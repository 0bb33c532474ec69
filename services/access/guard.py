"""Lets only callers with a key in: for a service whose callers are operators and other services."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.access.credentials import password_of, presented_key
from services.access.errors import ACCESS_STATUS, AccessError, GraphForbiddenError
from services.access.keys import EVERY_GRAPH, Keys
from services.http import domain_response

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no key."""

_CHALLENGE = 'Basic realm="kbqa: the password is an API key"'


class KeyGuard:
    """ASGI middleware that refuses requests without a key for every graph; only health checks need none."""

    def __init__(self, app: ASGIApp, *, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            headers = Headers(scope=scope)
            password = password_of(headers)
            try:
                record = self._keys.find(presented_key(headers) if password is None else password)
                if not record.is_for_all:
                    raise GraphForbiddenError(EVERY_GRAPH, frozenset(record.graphs))
            except AccessError as error:
                response = with_challenge(domain_response(error, ACCESS_STATUS), headers)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


def with_challenge(response: Response, headers: Headers) -> Response:
    """A refusal that makes a browser ask its user for a password, if the request is for a page.

    Args:
        headers: of the request.
    """
    if response.status_code == 401 and "text/html" in headers.get("accept", ""):
        response.headers.append("WWW-Authenticate", _CHALLENGE)
    return response
