"""The policy port over a vLLM server.

Every prompt is a separate request; all are in flight at once, and vLLM batches them. A request that fails
loses one completion and nothing else (ADR 57). vLLM's prefix cache holds what was computed before, so the
next turn of an episode and the siblings of a question start from there.

There are two ways to hold a version. A LoRA adapter is loaded beside the older ones under its own
name; calls in flight finish with the adapter that they began with. Full weights replace the old ones:
completions in flight pause, and continue with the new weights. Such a completion counts as written by
the version that began it, so that it never seems fresher than it is; its log-probabilities are those
with which each token was drawn.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from kbqa.errors import PolicyMismatchError, PolicyUnavailableError
from kbqa.policies.base import Codec, Completion, FinishReason, SamplingParams
from kbqa.policies.probe import Precision
from kbqa.policies.vllm.client import Answer
from kbqa.policies.vllm.completions import GENERATE, Choice, choice_of, longest_answer, request_bodies
from kbqa.policies.vllm.server import VllmServer
from kbqa.policies.vllm.weights import Weights
from kbqa.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_REMEMBERED = 16  # versions that a completion may have begun with
_POLL_S = 0.1  # how soon a cancellation is noticed
_NO_NUMBER = -9999.0  # what vLLM writes for a log-probability that is not finite


class VllmPolicy:
    """A vLLM server that holds one version at a time; `hold` must be called first.

    Args:
        codec: the versions' tokenizer; a stop tag that is one token stops the engine by its id.
        precision: what the server was started with (`--dtype`).
        timeout_s: maximum seconds of one completion, counted from when it is sent to the server.
    """

    def __init__(
        self,
        server: VllmServer,
        codec: Codec,
        metrics: Metrics,
        *,
        precision: Precision = "bfloat16",
        timeout_s: float = 600.0,
    ) -> None:
        self._server, self._codec, self._timeout_s = server, codec, timeout_s
        self._precision = precision
        self._in_flight = metrics.gauge("kbqa_engine_requests_running")
        self._failures = metrics.counter("kbqa_engine_failures_total")
        self._gap = metrics.gauge("kbqa_engine_logprob_gap")
        self._seconds = metrics.histogram("kbqa_engine_update_seconds")
        self._changed = threading.Condition()
        self._weights: Weights | None = None
        self._base: str | None = None  # label of the whole weights that it has loaded last
        self._versions: dict[str, str] = {}  # label → version, of all weights that were verified
        self._updating = self._failed = self._closed = False
        self._exchanges: set[Future[Answer]] = set()
        self._users: Counter[str] = Counter()  # calls in flight, by the label that they began with
        self._adapters: set[str] = set()  # adapters that the server holds for this policy
        self._max_length: int | None = None

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def max_length(self) -> int:
        if self._max_length is None:
            self._max_length = self._server.max_length()
        return self._max_length

    @property
    def alive(self) -> bool:
        """Whether it has weights, and no call has found that the server lost them."""
        return self._weights is not None and not self._failed and not self._closed

    @property
    def changing(self) -> AbstractContextManager[Any]:
        """Held while weights are loaded into the server, by this policy or another one."""
        return self._server.changing

    @property
    def superseded(self) -> bool:
        """Whether another policy has loaded whole weights into the server, which replace this one's."""
        return self._base is not None and self._server.wanted != self._base

    def hold(self, weights: Weights) -> None:
        """Load weights, and verify them with their trainer's probe.

        New completions then begin with them. If this fails, calls in flight and later calls fail until
        a `hold` succeeds.

        Raises:
            PolicyMismatchError: the probe's log-probabilities differ from the trainer's.
            PolicyUnavailableError: the server does not answer, or cannot load them.
        """
        began = time.monotonic()
        with self._server.changing:
            before = self._weights
            try:
                self._server.require_healthy()
                if weights.kind == "lora":
                    self._load_adapter(weights)
                else:
                    self._replace_base(weights)
            except BaseException:
                self._failures.labels("update").inc()
                self._give_up()
                raise
            self._failed = False
        self._seconds.labels(weights.kind).observe(time.monotonic() - began)
        if before is not None and before.label != weights.label:
            self._retire(before.label)

    def renew(self, weights: Weights) -> None:
        """Verify that the server still computes with these weights; load them if it does not hold them.

        Raises:
            PolicyUnavailableError: another policy has loaded its weights since. Otherwise as `hold`.
        """
        with self._server.changing:
            if self.superseded:
                raise PolicyUnavailableError(f"vLLM at {self.url} has been given other weights")
            self._server.require_healthy()
            if self._weights == weights and self._holds(weights):
                self._verify(weights)
                self._failed = False
            else:
                self.hold(weights)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Completion]:
        """As `Policy.generate`.

        A completion that the server does not give in time, or refuses, is lost. The call fails only if the
        server has other weights than this policy's, since then no completion can be right.
        """
        limit = min(self.max_length, params.max_total_tokens)
        for prompt in prompts:
            if not 0 < len(prompt) < limit:
                raise ValueError(f"a prompt of {len(prompt)} tokens leaves no room within {limit}")
        with self._using() as weights:
            model = weights.label if weights.kind == "lora" else None
            bodies = list(request_bodies(prompts, params, limit, self._codec, model))
            answers = self._answers(bodies, deadline, cancelled)
            self._settle()
            return [self._completion(answer, weights) for answer in answers]

    def close(self) -> None:
        """Abandon calls in flight, and unload the adapter; the server keeps running."""
        with self._changed:
            self._closed = True
        self._give_up()

    # -- weights

    def _load_adapter(self, weights: Weights) -> None:
        self._server.load_adapter(weights.label, weights.path)
        with self._changed:
            self._adapters.add(weights.label)
        try:
            self._verify(weights)
        except BaseException:
            self._unload(weights.label)
            raise
        with self._changed:
            self._weights = weights

    def _replace_base(self, weights: Weights) -> None:
        with self._changed:
            self._updating = True
        self._base = weights.label
        try:
            self._server.replace_weights(weights.label, partial(self._load_base, weights), self._give_up)
            self._verify(weights)
            with self._changed:
                self._weights = weights
                self._versions[weights.label] = weights.version
                while len(self._versions) > _REMEMBERED:
                    del self._versions[next(iter(self._versions))]
        finally:
            with self._changed:
                self._updating = False
                self._changed.notify_all()

    def _load_base(self, weights: Weights) -> None:
        if (sent := weights.sent) is not None:
            try:
                self._server.receive_weights(sent.meet, sent.sha256, sent.size)
                return
            except PolicyUnavailableError as error:
                self._failures.labels("transfer").inc()
                logger.warning(
                    "weights are read from files", extra={"version": weights.version, "error": str(error)}
                )
            sent.verify()
        self._server.read_weights(weights.path)

    def _holds(self, weights: Weights) -> bool:
        if weights.kind == "lora":
            return self._server.has_adapter(weights.label)
        return self._server.weight_label() == weights.label

    def _verify(self, weights: Weights) -> None:
        if weights.probe is None:
            logger.warning(
                "this version has no probe, so it is not verified", extra={"version": weights.version}
            )
            return
        model = weights.label if weights.kind == "lora" else None
        gap = weights.probe.gap(self._server.score(weights.probe, model))
        largest = weights.probe.largest_gap(self._precision)
        self._gap.set(gap)
        if not gap <= largest:  # `not <=`, so that NaN fails, too
            raise PolicyMismatchError(
                f"vLLM at {self._server.url} with policy {weights.version}: log-probabilities differ from "
                f"the trainer's by {gap:.2g} on average, and rounding explains at most {largest:.2g} in "
                f"{self._precision}: "
                "check that it serves the version's base model and, for full weights, that it was started "
                "without --enable-lora"
            )

    def _give_up(self) -> None:
        """Stop all completions, because the weights are in doubt."""
        with self._changed:
            before, self._weights = self._weights, None
            self._versions.clear()
            doomed = list(self._exchanges)
            self._changed.notify_all()
        for exchange in doomed:
            exchange.cancel()
        if before is not None:
            self._retire(before.label)

    def _retire(self, label: str) -> None:
        with self._changed:
            in_use = label in self._users
        if not in_use:  # else the last call that uses it unloads it
            self._unload(label)

    def _unload(self, label: str) -> None:
        """Unload an adapter; does nothing for full weights, or if it is unloaded already."""
        with self._changed:
            if label not in self._adapters:
                return
            self._adapters.remove(label)
        try:
            self._server.unload_adapter(label)
        except PolicyUnavailableError:
            self._failures.labels("unload").inc()  # it is gone with its server, or will be evicted

    # -- completions

    @contextmanager
    def _using(self) -> Iterator[Weights]:
        """The weights that a call begins with; an adapter stays loaded until the call ends."""
        with self._changed:
            # New calls wait until an update is over, as completions in the engine do.
            self._await_update()
            weights = self._weights
            if weights is None or self._closed:
                raise PolicyUnavailableError(f"no policy is loaded into vLLM at {self._server.url}")
            self._users[weights.label] += 1
        try:
            yield weights
        except PolicyUnavailableError:
            self._failed |= self._weights is weights
            self._failures.labels("generate").inc()
            raise
        finally:
            with self._changed:
                self._users[weights.label] -= 1
                last = not self._users[weights.label]
                if last:
                    del self._users[weights.label]
                current = self._weights
                retired = current is None or current.label != weights.label
            if last and retired:
                self._unload(weights.label)

    def _await_update(self) -> None:
        if not self._changed.wait_for(lambda: not self._updating, self._timeout_s):
            raise PolicyUnavailableError(f"vLLM at {self._server.url} is still changing its weights")

    def _settle(self) -> None:
        """Wait until weights that are being loaded are verified."""
        with self._changed:
            self._await_update()

    def _answers(
        self, bodies: Sequence[Mapping[str, Any]], deadline: float | None, cancelled: threading.Event | None
    ) -> list[Choice | PolicyUnavailableError | None]:
        """The choice that answers each request, or why there is none; None if the call was aborted before.

        Raises:
            PolicyUnavailableError: the policy was closed, or its weights are in doubt.
        """
        exchanges = [self._submit(body) for body in bodies]
        try:
            self._await(exchanges, deadline, cancelled)
            aborted = [not exchange.done() for exchange in exchanges]
            if any(exchange.cancelled() for exchange in exchanges):
                raise PolicyUnavailableError(
                    f"the completions of vLLM at {self._server.url} were stopped: the policy was closed, or "
                    "new weights could not be loaded"
                )
            return [
                None if late else choice_of(self._server.url, body, exchange)
                for body, exchange, late in zip(bodies, exchanges, aborted, strict=True)
            ]
        finally:
            for exchange in exchanges:
                exchange.cancel()

    def _submit(self, body: Mapping[str, Any]) -> Future[Answer]:
        exchange = self._server.client.submit(
            "POST", GENERATE, body, timeout_s=self._timeout_s, max_bytes=longest_answer(body)
        )
        self._in_flight.inc()
        with self._changed:
            self._exchanges.add(exchange)
        exchange.add_done_callback(self._landed)
        if self._weights is None:  # given up since
            exchange.cancel()
        return exchange

    def _landed(self, exchange: Future[Answer]) -> None:
        self._in_flight.dec()
        with self._changed:
            self._exchanges.discard(exchange)

    def _await(
        self, exchanges: Sequence[Future[Answer]], deadline: float | None, cancelled: threading.Event | None
    ) -> None:
        """Wait for all; less, if the deadline passes or the call is cancelled."""
        pending: set[Future[Answer]] = set(exchanges)
        while pending:
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or (cancelled is not None and cancelled.is_set()):
                return
            if cancelled is not None:
                left = _POLL_S if left is None else min(left, _POLL_S)
            pending = wait(pending, left).not_done

    def _completion(self, choice: Choice | PolicyUnavailableError | None, weights: Weights) -> Completion:
        if choice is None:
            return Completion((), (), FinishReason.ABORTED, weights.version)
        if isinstance(choice, PolicyUnavailableError):
            self._failures.labels("generate").inc()
            return Completion((), (), FinishReason.LOST, weights.version, str(choice))
        logprobs = tuple(token.logprob for token in choice.logprobs.content)
        if min(logprobs, default=0.0) <= _NO_NUMBER:
            raise PolicyUnavailableError(
                f"vLLM at {self._server.url} computes no probabilities with policy {weights.version}: "
                "its weights are not finite"
            )
        version = weights.version if weights.kind == "lora" else self._author(choice)
        return Completion(tuple(choice.token_ids), logprobs, FinishReason(choice.finish_reason), version)

    def _author(self, choice: Choice) -> str:
        """The version that began a completion, by the labels that the engine put on its tokens."""
        labels = [span.version for span in choice.weight_versions or ()]
        with self._changed:
            versions = [self._versions.get(label) for label in labels]
        if not versions or None in versions:
            raise PolicyUnavailableError(
                f"vLLM at {self._server.url} wrote with weights {', '.join(labels) or 'unknown'}, which "
                "this process did not load: it was restarted, or another process uses it, too"
            )
        assert versions[0] is not None
        return versions[0]
