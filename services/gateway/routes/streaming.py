"""Answers that take their time, to clients that may leave meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kbqa.client.events import Event, server_sent
from services.gateway.errors import problem_event

# What proxies' logs call a request whose client has left; nobody reads it.
_GONE = 499
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def unless_gone(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """What `work` answers; it is cancelled if the client leaves first. The body must have been read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else Response(status_code=_GONE)
    finally:
        working.cancel()
        leaving.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """Events as they come, comments where none comes for long; ends them when the client leaves."""

    media_type = "text/event-stream"

    @classmethod
    async def begin(
        cls,
        request: Request,
        events: AsyncGenerator[Event, None],
        *,
        keep_alive_s: float,
        write: Callable[[Event], str] = server_sent,
    ) -> Response:
        """Wait for the first event, so that what fails before it is an answer of its own.

        Where it takes long the stream begins all the same: proxies want to see something.

        Args:
            write: an event as the stream has it.

        Raises:
            whatever comes in place of the first event.
        """
        first = asyncio.ensure_future(anext(events, None))

        async def began() -> Response:
            try:
                done, _ = await asyncio.wait({first}, timeout=keep_alive_s)
                if done:
                    first.result()
                return cls(_told(first, events, keep_alive_s, write), headers=_HEADERS)
            except BaseException:
                first.cancel()
                raise

        return await unless_gone(request, began())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            assert isinstance(self.body_iterator, AsyncGenerator)
            await self.body_iterator.aclose()


async def _told(
    coming: asyncio.Future[Event | None],
    events: AsyncGenerator[Event, None],
    keep_alive_s: float,
    write: Callable[[Event], str],
) -> AsyncIterator[str]:
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=keep_alive_s)
            if not done:
                yield ": still at it\n\n"
                continue
            try:
                event = coming.result()
            except Exception as error:  # of the first event alone, when the stream had begun
                event = problem_event(error)
            if event is None:  # rather than an exception, whose traceback would hold all of this
                return
            yield write(event)
            coming = asyncio.ensure_future(anext(events, None))
    finally:
        if coming.done():
            await events.aclose()
        else:
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming
