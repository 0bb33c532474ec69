"""`Gateway` and `AsyncGateway`: the same calls, with and without `await`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, Unpack

import httpx
from httpx_sse import EventSource

from kbqa.client.batches import BatchAnswer, BatchLine, BatchModel
from kbqa.client.calls import (
    BATCHES,
    GRAPHS,
    AnswerOptions,
    BatchAnswers,
    Call,
    ModelT,
    answer_call,
    batch_call,
    event_of,
    feedback_call,
    policies_call,
    read_call,
    require_success,
    send_batch_call,
    unreachable,
)
from kbqa.client.events import Event
from kbqa.client.models import AnswerResponse, GraphModel, PoliciesModel, Verdict

DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT_S, _CONNECT_TIMEOUT_S = 330.0, 3.0


class Gateway:
    """A client of a gateway. Keeps connections open; safe for many threads. Close it, or use it in a `with`.

    The errors of all methods are `GatewayError`s that say what to do.

    Args:
        api_key: for a gateway that requires one.
        timeout_s: seconds for each answer, or in a stream for each event.
        transport: replaces the network (for tests).
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = _TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._client = httpx.Client(transport=transport, **_options(self.url, api_key, timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def answer(
        self,
        question: str,
        kg: str,
        *,
        idempotency_key: str | None = None,
        fresh: bool = False,
        **options: Unpack[AnswerOptions],
    ) -> AnswerResponse:
        """Answer a question about a graph.

        Args:
            idempotency_key: requests with the same key are answered only once.
            fresh: do not use an earlier answer from the cache.
        """
        return self._send(answer_call(question, kg, options, idempotency_key=idempotency_key, fresh=fresh))

    def stream(
        self,
        question: str,
        kg: str,
        *,
        idempotency_key: str | None = None,
        fresh: bool = False,
        **options: Unpack[AnswerOptions],
    ) -> Generator[Event, None, None]:
        """Yield every step towards the answer as it happens; the last event is `done`, with the document.

        Closing the iterator stops the work. Arguments are those of `answer`.
        """
        call = answer_call(question, kg, options, stream=True, idempotency_key=idempotency_key, fresh=fresh)
        with _translated(self.url), self._client.stream(**call.request()) as response:
            if not response.is_success:
                response.read()
                require_success(response)
            for sent in EventSource(response).iter_sse():
                yield event_of(sent.data, response)

    def read(self, answer_id: str) -> AnswerResponse:
        """An answer that this key received in the last hour or so."""
        return self._send(read_call(answer_id))

    def feedback(
        self,
        answer_id: str,
        verdict: Verdict,
        *,
        answers: Sequence[str] | None = None,
        comment: str | None = None,
    ) -> str:
        """Say whether an answer was right; returns the feedback's id.

        Args:
            answers: the correct answers, by id or exact label.
        """
        return self._send(feedback_call(answer_id, verdict, answers, comment)).id

    def graphs(self) -> list[GraphModel]:
        """The graphs that this key may ask about."""
        return self._send(GRAPHS).graphs

    def policies(self, kg: str | None = None) -> PoliciesModel:
        """The policy that answers, and the versions that could.

        Args:
            kg: graph whose policy is wanted; None for the gateway's first choice.
        """
        return self._send(policies_call(kg))

    def send_batch(self, lines: Iterable[BatchLine], *, idempotency_key: str | None = None) -> BatchModel:
        """Send many questions at once, which the gateway answers when it has time.

        Args:
            idempotency_key: requests with the same key and lines create one batch.
        """
        return self._send(send_batch_call(lines, idempotency_key))

    def batch(self, batch_id: str) -> BatchModel:
        """The progress of a batch."""
        return self._send(batch_call(batch_id))

    def batches(self) -> list[BatchModel]:
        """The batches of this key, oldest first."""
        return self._send(BATCHES).batches

    def batch_answers(self, batch_id: str, *, after: int = 0) -> Generator[BatchAnswer, None, None]:
        """Yield the answers of a batch that are ready, in the order in which they became ready.

        Args:
            after: number of answers to leave out, because you have them already.
        """
        call = batch_call(batch_id, beneath=f"/answers?after={after}")
        with _translated(self.url), self._client.stream(**call.request()) as response:
            if not response.is_success:
                response.read()
                require_success(response)
            answers = BatchAnswers(response)
            for chunk in response.iter_bytes():
                yield from answers.of(chunk)

    def cancel_batch(self, batch_id: str) -> BatchModel:
        """Begin no further line of a batch; its answers can still be read."""
        return self._send(batch_call(batch_id, "POST", "/cancel"))

    def delete_batch(self, batch_id: str) -> None:
        """Delete a batch and its answers; one that is not done is cancelled first."""
        with _translated(self.url):
            require_success(self._client.request(**batch_call(batch_id, "DELETE").request()))

    def _send(self, call: Call[ModelT]) -> ModelT:
        with _translated(self.url):
            return call.result(self._client.request(**call.request()))


class AsyncGateway:
    """`Gateway` for asyncio, with the same arguments, methods and errors."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = _TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._client = httpx.AsyncClient(transport=transport, **_options(self.url, api_key, timeout_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.aclose()

    async def answer(
        self,
        question: str,
        kg: str,
        *,
        idempotency_key: str | None = None,
        fresh: bool = False,
        **options: Unpack[AnswerOptions],
    ) -> AnswerResponse:
        """As `Gateway.answer`."""
        return await self._send(
            answer_call(question, kg, options, idempotency_key=idempotency_key, fresh=fresh)
        )

    async def stream(
        self,
        question: str,
        kg: str,
        *,
        idempotency_key: str | None = None,
        fresh: bool = False,
        **options: Unpack[AnswerOptions],
    ) -> AsyncGenerator[Event, None]:
        """As `Gateway.stream`."""
        call = answer_call(question, kg, options, stream=True, idempotency_key=idempotency_key, fresh=fresh)
        with _translated(self.url):
            async with self._client.stream(**call.request()) as response:
                if not response.is_success:
                    await response.aread()
                    require_success(response)
                async for sent in EventSource(response).aiter_sse():
                    yield event_of(sent.data, response)

    async def read(self, answer_id: str) -> AnswerResponse:
        """As `Gateway.read`."""
        return await self._send(read_call(answer_id))

    async def feedback(
        self,
        answer_id: str,
        verdict: Verdict,
        *,
        answers: Sequence[str] | None = None,
        comment: str | None = None,
    ) -> str:
        """As `Gateway.feedback`."""
        return (await self._send(feedback_call(answer_id, verdict, answers, comment))).id

    async def graphs(self) -> list[GraphModel]:
        """As `Gateway.graphs`."""
        return (await self._send(GRAPHS)).graphs

    async def policies(self, kg: str | None = None) -> PoliciesModel:
        """As `Gateway.policies`."""
        return await self._send(policies_call(kg))

    async def send_batch(
        self, lines: Iterable[BatchLine], *, idempotency_key: str | None = None
    ) -> BatchModel:
        """As `Gateway.send_batch`."""
        return await self._send(send_batch_call(lines, idempotency_key))

    async def batch(self, batch_id: str) -> BatchModel:
        """As `Gateway.batch`."""
        return await self._send(batch_call(batch_id))

    async def batches(self) -> list[BatchModel]:
        """As `Gateway.batches`."""
        return (await self._send(BATCHES)).batches

    async def batch_answers(self, batch_id: str, *, after: int = 0) -> AsyncGenerator[BatchAnswer, None]:
        """As `Gateway.batch_answers`."""
        call = batch_call(batch_id, beneath=f"/answers?after={after}")
        with _translated(self.url):
            async with self._client.stream(**call.request()) as response:
                if not response.is_success:
                    await response.aread()
                    require_success(response)
                answers = BatchAnswers(response)
                async for chunk in response.aiter_bytes():
                    for answer in answers.of(chunk):
                        yield answer

    async def cancel_batch(self, batch_id: str) -> BatchModel:
        """As `Gateway.cancel_batch`."""
        return await self._send(batch_call(batch_id, "POST", "/cancel"))

    async def delete_batch(self, batch_id: str) -> None:
        """As `Gateway.delete_batch`."""
        with _translated(self.url):
            require_success(await self._client.request(**batch_call(batch_id, "DELETE").request()))

    async def _send(self, call: Call[ModelT]) -> ModelT:
        with _translated(self.url):
            return call.result(await self._client.request(**call.request()))


def _options(url: str, api_key: str | None, timeout_s: float) -> dict[str, Any]:
    return {
        "base_url": url,
        "headers": {"Authorization": f"Bearer {api_key}"} if api_key is not None else None,
        "timeout": httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S),
        "trust_env": False,  # our own services are never behind the environment's proxy
    }


@contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(url, error) from error
