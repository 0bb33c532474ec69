"""Slow responses to clients that may disconnect before they are complete."""

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

# The status that proxies log if the client has disconnected; the client never sees it.
_GONE = 499
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def unless_gone(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The response of `work`, which is cancelled if the client disconnects first. Read the body before."""
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
    """Streams events, with comments as keep-alive; closes the events if the client disconnects."""

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
        """Wait for the first event, so that an error before it gets a response with its own status.

        After `keep_alive_s` the stream begins anyway, because proxies close silent connections.

        Args:
            keep_alive_s: seconds without an event after which a keep-alive is sent.
            write: returns the text of an event in the stream.

        Raises:
            any error that occurs before the first event.
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
                yield ": keep-alive\n\n"
                continue
            try:
                event = coming.result()
            except Exception as error:  # before the first event, but after the stream had begun
                event = problem_event(error)
            if event is None:  # the end; an exception's traceback would keep all of this alive
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
