"""A real HTTP server that speaks OpenAI's chat interface and says what a test tells it to."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

Said = str | dict[str, Any] | Response


def calls(name: str, arguments: str, thought: str = "") -> dict[str, Any]:
    """A message that calls a function."""
    function = {"name": name, "arguments": arguments}
    return {"content": thought, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


class ChatServer:
    """`script` is asked with the body of each request: a text, a message or a whole response.

    As OpenAI's servers do, it ends a text before the first stop string and keeps that to itself.
    """

    def __init__(self) -> None:
        self.script: Callable[[dict[str, Any]], Said] = lambda body: "hm"
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.abandoned = threading.Event()
        self.url = ""

    def says(self, *turns: Said) -> None:
        """Plays the turns in order, and the last of them again and again."""
        said = iter(turns)
        self.script = lambda body: next(said, turns[-1])

    def stalls(self) -> None:
        """Lets every request wait until it is abandoned."""
        self.script = lambda body: {"stall": True}

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        said = self.script(body)
        if isinstance(said, Response):
            return said
        if said == {"stall": True}:
            while not await request.is_disconnected():
                await asyncio.sleep(0.01)
            self.abandoned.set()
            return Response()
        message = {"content": said} if isinstance(said, str) else dict(said)
        for stop in body.get("stop", ()):
            message["content"] = (message["content"] or "").partition(stop)[0]
        usage = {"prompt_tokens": 10 * len(body["messages"]), "completion_tokens": 5}
        choice = {"message": {"role": "assistant", **message}, "finish_reason": "stop"}
        return JSONResponse({"model": "scripted-1", "choices": [choice], "usage": usage})


@contextmanager
def serve() -> Iterator[ChatServer]:
    """A server on a free port, until the end of the block."""
    chat, app = ChatServer(), FastAPI()
    app.post("/v1/chat/completions")(chat.answer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        chat.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        try:
            yield chat
        finally:
            server.should_exit = True
            thread.join()
