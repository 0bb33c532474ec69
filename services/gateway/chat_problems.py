"""Makes problem documents readable for clients of OpenAI's API, which look for `error.message`."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

_ROUTES = ("/v1/chat/", "/v1/models")


class ChatProblems:
    """ASGI middleware that adds an `error` to the problem documents of the chat routes.

    It wraps all other middleware, so that these clients can read every rejection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_ROUTES):
            await self._app(scope, receive, send)
            return
        held: MutableMapping[str, Any] | None = None  # start of a problem, held until its length is known

        async def complete(message: MutableMapping[str, Any]) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                if Headers(scope=message).get("content-type") == "application/problem+json":
                    held = message
                    return
            elif held is not None:
                body = _with_error(message["body"])
                MutableHeaders(scope=held)["content-length"] = str(len(body))
                await send(held)
                message = {**message, "body": body}
                held = None
            await send(message)

        await self._app(scope, receive, complete)


def _with_error(body: bytes) -> bytes:
    problem = json.loads(body)
    error = {"message": problem["detail"], "type": problem["type"], "code": problem["status"]}
    return json.dumps({**problem, "error": error}, ensure_ascii=False).encode()
