"""A client of OpenAI-compatible chat endpoints.

It is used for policies and judges that are external models. Transient errors (too many requests,
a server's failure, a broken connection) are retried with growing pauses within a deadline; other
errors are raised at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from kbqa.errors import ChatRefusedError, ChatUnavailableError, ConfigurationError

logger = logging.getLogger(__name__)

Role = Literal["system", "user", "assistant", "tool"]

_CONNECT_S = 3.0
_POLL_S = 0.05  # delay until a cancellation is noticed
_TRIED_AGAIN = frozenset({408, 409, 425, 429})  # and all from 500
_LONGEST_PAUSE_S = 20.0
_MOST_BYTES = 16 * 2**20  # of an answer; that to the longest completion has less than one
# Parts of servers' errors for a conversation that exceeds the context: OpenAI's code, and vLLM's texts.
_TOO_LONG = ("context_length_exceeded", "maximum context length", "max_model_len", "too many tokens")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function; `arguments` is text as the model wrote it, which should be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        tool_calls: for an assistant's message, the calls in it.
        answers: for a tool's message, the id of the call that it answers.
    """

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    answers: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The message in the format of the API."""
        message: dict[str, Any] = {"role": self.role, "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.tool_calls
            ]
        if self.answers is not None:
            message["tool_call_id"] = self.answers
        return message


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages so far, and the functions that the model may call: JSON schemas with `name`."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ChatParams:
    """How to sample.

    Attributes:
        max_tokens: maximum tokens of a reply; None for the server's limit.
        temperature: 0 selects the most probable token.
        stop: a reply ends before the first of these; most servers accept at most four.
        seed: makes replies reproducible if the server supports it; the k-th of several
            conversations uses seed + k.
    """

    max_tokens: int | None = None
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A reply of the model.

    Attributes:
        reasoning: the thoughts of a reasoning model, if the server returns them separately.
        cut: whether the reply was cut at its maximum tokens; also set, with an empty text, if the
            conversation exceeds the model's context.
        prompt_tokens, generated_tokens: as counted by the server; 0 if it does not count.
        model: the model's name at the server.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    cut: bool = False
    prompt_tokens: int = 0
    generated_tokens: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A model behind an endpoint.

    Attributes:
        url: of the API, such as https://api.openai.com/v1 or a vLLM server's.
        api_key: sent as a bearer token.
        timeout_s: seconds for each attempt.
        attempts: maximum number of requests for one reply.
        back_off_s: pause after the first attempt; each further one is twice as long.
        extra: further fields of every request; None removes one of ours, for instance
            `{"stop": None}` for a model that does not accept stop strings.
    """

    name: str
    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 60.0
    attempts: int = 4
    back_off_s: float = 0.5
    extra: Mapping[str, Any] = field(default_factory=dict)


class ChatClient:
    """Talks to one model; safe for many threads. Close it, or use it in a `with`.

    Requests run on an event loop in a separate thread, so that they can be abandoned: closing a
    request's connection tells the server to stop.

    Raises:
        ConfigurationError: the model's URL is invalid.
    """

    def __init__(self, model: ChatModel) -> None:
        parts = urlsplit(model.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"chat endpoint: {model.url!r} is not of the form https://host/v1")
        self.model = model
        self._url = f"{model.url.rstrip('/')}/chat/completions"
        self._http = httpx.AsyncClient(
            headers={
                "Accept-Encoding": "identity",  # a few compressed bytes may become any number
                **({"Authorization": f"Bearer {model.api_key}"} if model.api_key else {}),
            },
            timeout=httpx.Timeout(model.timeout_s, connect=_CONNECT_S),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat", daemon=True)
        self._thread.start()
        self._closed = threading.Event()
        self._submitting = threading.Lock()  # so that nothing is submitted after closing

    def __enter__(self) -> ChatClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and abandon the requests in progress."""
        with self._submitting:
            if self._closed.is_set():
                return
            self._closed.set()
            end = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        end.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def reply(
        self,
        conversations: Sequence[Conversation],
        params: ChatParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[ChatReply | None]:
        """Request the replies to all conversations at once.

        Args:
            deadline: `time.monotonic()` after which requests are abandoned.
            cancelled: when set, requests are abandoned.

        Returns:
            A reply per conversation; None if its request was abandoned.

        Raises:
            ChatUnavailableError: a request has no reply after all attempts, or the client is closed.
            ChatRefusedError: the endpoint refuses a request, or is not a chat endpoint.
        """
        bodies = [self._body(one, params, number) for number, one in enumerate(conversations)]
        with self._submitting:
            if self._closed.is_set():
                raise ChatUnavailableError(f"the client of {self._url} is closed")
            work = self._reply(bodies, deadline, cancelled or threading.Event())
            replies = asyncio.run_coroutine_threadsafe(work, self._loop)
        return replies.result()

    def _body(self, conversation: Conversation, params: ChatParams, number: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model.name,
            "messages": [message.to_json() for message in conversation.messages],
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "stop": list(params.stop) or None,
            "seed": None if params.seed is None else params.seed + number,
            "tools": [{"type": "function", "function": dict(tool)} for tool in conversation.tools] or None,
            **self.model.extra,
        }
        return {key: value for key, value in body.items() if value is not None}

    async def _reply(
        self, bodies: Sequence[Mapping[str, Any]], deadline: float | None, cancelled: threading.Event
    ) -> list[ChatReply | None]:
        tasks = [asyncio.ensure_future(self._ask(body)) for body in bodies]
        try:
            pending: set[asyncio.Future[ChatReply]] = set(tasks)
            while pending and not cancelled.is_set() and not self._closed.is_set() and _in_time(deadline):
                left = _POLL_S if deadline is None else min(_POLL_S, max(0.0, deadline - time.monotonic()))
                done, pending = await asyncio.wait(pending, timeout=left)
                if any(task.exception() for task in done):
                    break
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        replies: list[ChatReply | None] = []
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
                raise end
            replies.append(None if isinstance(end, BaseException) else end)
        return replies

    async def _ask(self, body: Mapping[str, Any]) -> ChatReply:
        reason = ""
        for attempt in range(self.model.attempts):
            pause = self.model.back_off_s * 2**attempt * random.uniform(0.75, 1.25)
            try:
                async with self._http.stream("POST", self._url, json=body) as response:
                    data = await self._read(response)
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
            except httpx.HTTPError as error:
                raise self._refused(str(error) or type(error).__name__) from error
            else:
                status = response.status_code
                if status < 300:
                    return self._parse(data)
                text = data.decode("utf-8", "replace")
                reason = f"{status}: {text[:300]}"
                if status < 500 and status not in _TRIED_AGAIN:
                    if status in (400, 413, 422) and any(words in text for words in _TOO_LONG):
                        return ChatReply("", cut=True, model=self.model.name)
                    raise self._refused(reason)
                pause = max(pause, _retry_after_s(response))
            if attempt + 1 < self.model.attempts:
                logger.warning(
                    "chat endpoint failed; trying again", extra={"url": self._url, "reason": reason}
                )
                await asyncio.sleep(min(pause, _LONGEST_PAUSE_S))
        raise ChatUnavailableError(
            f"{self._who} gave no reply in {self.model.attempts} attempts: {reason}; check that it is running"
        )

    async def _read(self, response: httpx.Response) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise self._refused("it compresses its answers although it was not asked to")
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > _MOST_BYTES:
                raise self._refused(f"its answer is longer than {_MOST_BYTES} bytes")
        return bytes(data)

    def _parse(self, data: bytes) -> ChatReply:
        try:
            answer = json.loads(data)
            choice = answer["choices"][0]
            message, usage = choice["message"], answer.get("usage") or {}
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            return ChatReply(
                text=_text(message.get("content")),
                tool_calls=tuple(_tool_call(call) for call in message.get("tool_calls") or ()),
                reasoning=_text(reasoning),
                cut=choice.get("finish_reason") == "length",
                prompt_tokens=int(usage.get("prompt_tokens") or 0),
                generated_tokens=int(usage.get("completion_tokens") or 0),
                model=str(answer.get("model") or self.model.name),
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            text = data[:300].decode("utf-8", "replace")
            raise self._refused(f"no chat completion: {text!r}") from error

    @property
    def _who(self) -> str:
        return f"the model {self.model.name} at {self._url}"

    def _refused(self, reason: str) -> ChatRefusedError:
        return ChatRefusedError(f"{self._who} refuses ({reason}): correct its URL, name, key or parameters")

    async def _end(self) -> None:
        """Wait for the remaining requests, which notice by themselves that the client is closed."""
        mine = asyncio.current_task()
        await asyncio.gather(*(asyncio.all_tasks() - {mine}), return_exceptions=True)
        await self._http.aclose()


def _in_time(deadline: float | None) -> bool:
    return deadline is None or time.monotonic() < deadline


def _retry_after_s(response: httpx.Response) -> float:
    """The pause that the server requests; 0 if it is not a number of seconds."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    arguments = function.get("arguments")
    # Some servers send an object instead of text.
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(_text(call.get("id")) or "call", _text(function["name"]), _text(written))


def _text(content: Any) -> str:
    """Content as text that can be sent again: None becomes "", and unpaired surrogates are replaced."""
    if isinstance(content, list):  # of parts
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    return "" if content is None else str(content).encode(errors="replace").decode()
