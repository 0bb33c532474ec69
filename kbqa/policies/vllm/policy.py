"""The policy port over a vLLM server.

Every prompt is a separate request; all are in flight at once, and vLLM batches them. vLLM's prefix
cache holds what was computed before, so the next turn of an episode and the siblings of a question
start from there.

There are two ways to hold a version. A LoRA adapter is loaded beside the older ones under its own
name; calls in flight finish with the adapter that they began with. Full weights replace the old ones:
completions in flight pause, and continue with the new weights. Such a completion counts as written by
the version that began it, so that it never seems fresher than it is; its log-probabilities are those
with which each token was drawn.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

from kbqa.errors import PolicyMismatchError, PolicyUnavailableError
from kbqa.policies.base import Codec, Completion, FinishReason, SamplingParams
from kbqa.policies.probe import Precision
from kbqa.policies.vllm.exchange import Exchange
from kbqa.policies.vllm.server import VllmServer, refusal
from kbqa.policies.vllm.weights import Weights
from kbqa.telemetry import Metrics
from kbqa.trajectory import Segment

logger = logging.getLogger(__name__)

_GENERATE = "/inference/v1/generate"
_REMEMBERED = 16  # versions that a completion may have begun with
_POLL_S = 0.1  # how soon a cancellation is noticed
_NO_NUMBER = -9999.0  # what vLLM writes for a log-probability that is not finite


class VllmPolicy:
    """A vLLM server that holds one version at a time; `hold` must be called first.

    Args:
        codec: the versions' tokenizer; a stop tag that is one token stops the engine by its id.
        precision: what the server was started with (`--dtype`).
        timeout_s: maximum seconds of a call of `generate`.
        max_in_flight: maximum completions requested at a time; others wait here.
    """

    def __init__(
        self,
        server: VllmServer,
        codec: Codec,
        metrics: Metrics,
        *,
        precision: Precision = "bfloat16",
        timeout_s: float = 120.0,
        max_in_flight: int = 1024,
    ) -> None:
        self._server, self._codec, self._timeout_s = server, codec, timeout_s
        self._precision = precision
        self._in_flight = metrics.gauge("kbqa_engine_requests_running")
        self._failures = metrics.counter("kbqa_engine_failures_total")
        self._gap = metrics.gauge("kbqa_engine_logprob_gap")
        self._seconds = metrics.histogram("kbqa_engine_update_seconds")
        self._threads = ThreadPoolExecutor(max_in_flight, thread_name_prefix="vllm")
        self._changed = threading.Condition()
        self._weights: Weights | None = None
        self._versions: dict[str, str] = {}  # label → version, of all weights that were verified
        self._updating = self._failed = self._closed = False
        self._exchanges: set[Exchange] = set()
        self._users: Counter[str] = Counter()  # calls in flight, by the label that they began with
        self._adapters: set[str] = set()  # adapters that the server holds for this policy
        self._max_length: int | None = None

    @property
    def max_length(self) -> int:
        if self._max_length is None:
            self._max_length = self._server.max_length()
        return self._max_length

    @property
    def alive(self) -> bool:
        """Whether it has weights, and no call has failed since it got them."""
        return self._weights is not None and not self._failed and not self._closed

    def hold(self, weights: Weights) -> None:
        """Load weights, and verify them with their trainer's probe.

        New completions then begin with them. If this fails, calls in flight and later calls fail until
        a `hold` succeeds.

        Raises:
            PolicyMismatchError: the probe's log-probabilities differ from the trainer's.
            PolicyUnavailableError: the server does not answer, or cannot load them.
        """
        began = time.monotonic()
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

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Completion]:
        limit = min(self.max_length, params.max_total_tokens)
        for prompt in prompts:
            if not 0 < len(prompt) < limit:
                raise ValueError(f"a prompt of {len(prompt)} tokens leaves no room within {limit}")
        with self._using() as weights:
            common = self._sampling(params)
            exchanges = []
            for index, prompt in enumerate(prompts):
                sampling = common | {"max_tokens": min(params.max_tokens, limit - len(prompt))}
                if params.seed is not None:
                    # One stream per sample, so that it does not depend on the rest of the batch.
                    sampling["seed"] = random.Random(f"{params.seed}/{index}").getrandbits(62)
                body: dict[str, Any] = {"token_ids": list(prompt), "sampling_params": sampling}
                if weights.kind == "lora":
                    body["model"] = weights.label
                exchanges.append(self._exchange(body))
            choices = self._choices(exchanges, deadline, cancelled)
            self._settle()
            return [self._completion(choice, weights) for choice in choices]

    def close(self) -> None:
        """Abandon calls in flight, and unload the adapter; the server keeps running."""
        with self._changed:
            self._closed = True
        self._give_up()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- weights

    def _load_adapter(self, weights: Weights) -> None:
        self._server.load_adapter(weights.label, weights.path)
        with self._changed:
            self._adapters.add(weights.label)
        try:
            self._verify(weights, weights.label)
        except BaseException:
            self._unload(weights.label)
            raise
        with self._changed:
            self._weights = weights

    def _replace_base(self, weights: Weights) -> None:
        with self._changed:
            self._updating = True
        try:
            self._server.replace_weights(weights.label, partial(self._load_base, weights), self._give_up)
            self._verify(weights, None)
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

    def _verify(self, weights: Weights, model: str | None) -> None:
        if weights.probe is None:
            logger.warning(
                "this version has no probe, so it is not verified", extra={"version": weights.version}
            )
            return
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
            exchange.abandon()
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
            self._failed = True
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

    def _sampling(self, params: SamplingParams) -> dict[str, Any]:
        """All sampling parameters of a call, so that a model's `generation_config.json` has no effect."""
        spelled = [self._codec.encode([Segment(stop)]) for stop in params.stop]
        return {
            "temperature": params.temperature,
            "top_p": params.truncation.top_p,
            "top_k": params.truncation.top_k or 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop": list(params.stop),
            "stop_token_ids": [tokens[0] for tokens in spelled if len(tokens) == 1],
            "skip_special_tokens": False,  # tags are special tokens; skipped, they would never be found
            "logprobs": 0,
        }

    def _exchange(self, body: dict[str, Any]) -> Exchange:
        return Exchange(self._server.connections, "POST", _GENERATE, body, timeout_s=self._timeout_s)

    def _choices(
        self, exchanges: Sequence[Exchange], deadline: float | None, cancelled: threading.Event | None
    ) -> list[dict[str, Any] | None]:
        """The result of each exchange, None if the call was aborted first; raises the first failure.

        Exchanges that are still running then are abandoned.
        """
        with self._changed:
            self._exchanges.update(exchanges)
        try:
            futures = self._submit(exchanges)
            if self._await(futures, deadline, cancelled):
                return [future.result() for future in futures]
            return [future.result() if future.done() else None for future in futures]
        except CancelledError as error:
            raise PolicyUnavailableError("the policy was closed") from error
        finally:
            for exchange in exchanges:
                exchange.abandon()
            with self._changed:
                self._exchanges.difference_update(exchanges)

    def _await(
        self, futures: Sequence[Future[Any]], deadline: float | None, cancelled: threading.Event | None
    ) -> bool:
        """Wait for all, or for the first failure; False if the deadline passed or the call was cancelled."""
        until = time.monotonic() + self._timeout_s
        pending: set[Future[Any]] = set(futures)
        while pending:
            now = time.monotonic()
            if (deadline is not None and now >= deadline) or (cancelled is not None and cancelled.is_set()):
                return False
            if now >= until:
                raise PolicyUnavailableError(
                    f"vLLM at {self._server.url} has not answered within {self._timeout_s:g} s"
                )
            left = min(until, deadline or until) - now
            done, pending = wait(pending, left if cancelled is None else min(left, _POLL_S), FIRST_EXCEPTION)
            for future in done:
                future.result()
        return True

    def _submit(self, exchanges: Sequence[Exchange]) -> list[Future[dict[str, Any]]]:
        try:
            return [self._threads.submit(self._run, exchange) for exchange in exchanges]
        except RuntimeError as error:  # the threads are shut down
            raise PolicyUnavailableError("the policy is closed") from error

    def _run(self, exchange: Exchange) -> dict[str, Any]:
        with self._in_flight.track_inprogress():
            status, answer = exchange.run()
        if status != 200:
            raise refusal(self._server.url, _GENERATE, status, answer)
        choice: dict[str, Any] = answer["choices"][0]
        return choice

    def _completion(self, choice: dict[str, Any] | None, weights: Weights) -> Completion:
        if choice is None:
            return Completion((), (), FinishReason.ABORTED, weights.version)
        tokens, content = choice["token_ids"], choice["logprobs"]["content"]
        logprobs = tuple(entry["logprob"] for entry in content)
        reason = choice["finish_reason"]
        if reason not in ("stop", "length") or [entry["token_id"] for entry in content] != tokens:
            raise PolicyUnavailableError(f"vLLM at {self._server.url} aborted a completion ({reason})")
        if min(logprobs, default=0.0) <= _NO_NUMBER:
            raise PolicyUnavailableError(
                f"vLLM at {self._server.url} computes no probabilities with policy {weights.version}: "
                "its weights are not finite"
            )
        version = weights.version if weights.kind == "lora" else self._author(choice)
        return Completion(tuple(tokens), logprobs, FinishReason(reason), version)

    def _author(self, choice: dict[str, Any]) -> str:
        """The version that began a completion, by the labels that the engine put on its tokens."""
        labels = [span["version"] for span in choice["weight_versions"] or ()]
        with self._changed:
            versions = [self._versions.get(label) for label in labels]
        if not versions or None in versions:
            raise PolicyUnavailableError(
                f"vLLM at {self._server.url} wrote with weights {', '.join(labels) or 'unknown'}, which "
                "this process did not load: it was restarted, or another process uses it, too"
            )
        assert versions[0] is not None
        return versions[0]
