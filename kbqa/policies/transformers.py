"""An in-process engine for transformers models: continuous batching with a prefix cache.

Shapes: B rows in flight, T new tokens, L cached positions, V vocabulary.

One thread owns the model. Callers queue their prompts; the thread admits them
into free rows, and each step extends every row by a token. Rows in flight are
always the first B of the cache, so that attention reads a view and copies
nothing. The keys and values of a finished row are cached under its tokens: the
next turn of the same episode, and the siblings of the same question, reuse them.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from kbqa.errors import PolicyIntegrityError, PolicyUnavailableError
from kbqa.policies.base import Codec, Completion, FinishReason, SamplingParams, is_unwanted
from kbqa.policies.prefix_cache import PrefixCache
from kbqa.policies.row_cache import RowCache
from kbqa.policies.sampling import draw

logger = logging.getLogger(__name__)

_STOP_WINDOW = 16  # number of last tokens that are searched for a stop string
_PREFILL_TOKENS = 4096  # padded tokens of one prefill batch; bounds its memory


def load_language_model(directory: Path) -> Any:
    """A causal language model from a Hugging Face directory, fp32, safetensors only.

    Raises:
        PolicyIntegrityError: the directory holds no model that can be loaded.
    """
    disable_progress_bar()  # it would appear on standard error among the log messages
    try:
        model = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise PolicyIntegrityError(f"{directory}: the model cannot be loaded ({error})") from error
    return model.eval()


class TransformersPolicy:
    """The policy port over a model in this process.

    Args:
        model: a causal language model whose attention takes a cache (Llama, Qwen2 and kin).
        codec: its tokenizer, for finding stop strings.
        version: full id of the version that the model holds.
        max_rows: maximum completions computed at a time; others wait.
        cached_tokens: tokens of finished rows that are kept for reuse.
    """

    def __init__(
        self,
        model: Any,
        codec: Codec,
        version: str,
        *,
        max_length: int | None = None,
        max_rows: int = 64,
        cached_tokens: int = 65536,
    ) -> None:
        self._model, self._codec, self._version = model, codec, version
        self._max_length = max_length or int(model.config.max_position_embeddings)
        self._rows: list[_Row] = []
        self._cache = RowCache(model.config, max_rows, self._max_length)
        self._prefixes = PrefixCache(cached_tokens)
        self._inbox: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._waiting: list[_Request] = []
        self._unanswered: set[_Request] = set()
        self._swap: tuple[str, Callable[[Any], None], Future[None]] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="policy-engine", daemon=True)
        self._thread.start()

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def version(self) -> str:
        return self._version

    @property
    def alive(self) -> bool:
        """Whether it still computes: not closed, and not stopped by a failure."""
        return not self._closed

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Completion]:
        limit = min(self._max_length, params.max_total_tokens)
        requests = []
        for index, prompt in enumerate(prompts):
            if not 0 < len(prompt) < limit:
                raise ValueError(f"a prompt of {len(prompt)} tokens leaves no room within {limit}")
            # One stream per sample, so that it does not depend on the rest of the batch.
            rng = random.Random() if params.seed is None else random.Random(f"{params.seed}/{index}")
            requests.append(_Request(tuple(prompt), params, limit, rng, deadline, cancelled))
        for request in requests:
            self._inbox.put(request)
        if self._closed:
            self._fail_all(PolicyUnavailableError("the policy engine is closed"))
        return [request.future.result() for request in requests]

    def swap(self, version: str, change: Callable[[Any], None]) -> None:
        """Let `change` replace the model's weights, between completions.

        New requests wait and completions in flight finish first, so that each
        completion is written by one version. Cached rows are dropped.
        """
        done: Future[None] = Future()
        self._swap = (version, change, done)
        self._inbox.put(None)
        if self._closed:
            self._fail_all(PolicyUnavailableError("the policy engine is closed"))
        done.result()

    def close(self) -> None:
        """Stop the engine; calls in flight fail."""
        self._closed = True
        self._inbox.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while not self._closed:
                    self._receive()
                    self._abort()
                    if self._swap is not None and not self._rows:
                        self._apply_swap()
                    if self._swap is None:
                        self._admit()
                    if self._rows:
                        self._step()
        except Exception as error:  # after any failure, no caller may wait for ever
            self._closed = True
            logger.exception("the policy engine failed")
            self._fail_all(PolicyUnavailableError(f"the policy engine failed: {error!r}"), cause=error)
        self._fail_all(PolicyUnavailableError("the policy engine was closed"))

    def _receive(self) -> None:
        """Take in new requests; block only while there is nothing to compute."""
        idle = not self._rows and not self._waiting and self._swap is None
        while idle or not self._inbox.empty():
            request = self._inbox.get()
            idle = False
            if request is not None:
                self._waiting.append(request)
                self._unanswered.add(request)

    def _abort(self) -> None:
        """Answer requests that nobody waits for any more, whether they have begun or not."""
        for request in [request for request in self._waiting if request.unwanted]:
            self._waiting.remove(request)
            self._unanswered.discard(request)
            request.future.set_result(Completion((), (), FinishReason.ABORTED, self._version))
        for row in self._rows:
            if row.request.unwanted:
                row.finish_reason = FinishReason.ABORTED
        self._retire()

    def _apply_swap(self) -> None:
        assert self._swap is not None
        version, change, done = self._swap
        self._swap = None
        try:
            change(self._model)
        except Exception as error:
            done.set_exception(error)
            return
        self._version = version
        self._prefixes.clear()
        done.set_result(None)

    def _admit(self) -> None:
        """Move waiting requests into free rows and compute their prompts."""
        free = self._cache.capacity - len(self._rows)
        if not self._waiting or free <= 0:
            return
        admitted, self._waiting = self._waiting[:free], self._waiting[free:]
        # Siblings share a prompt: the first computes it, the others copy its row.
        leaders: dict[tuple[int, ...], _Request] = {}
        siblings = [r for r in admitted if leaders.setdefault(r.prompt, r) is not r]
        batch: list[_Request] = []
        for request in sorted(leaders.values(), key=lambda r: len(r.prompt)):
            if batch and (len(batch) + 1) * len(request.prompt) > _PREFILL_TOKENS:
                self._prefill(batch)
                batch = []
            batch.append(request)
        self._prefill(batch)
        rows = {row.request.prompt: (index, row) for index, row in enumerate(self._rows)}
        for request in siblings:
            index, leader = rows[request.prompt]
            self._cache.copy(index, len(self._rows), len(request.prompt))
            row = _Row(request, list(request.prompt), logits=leader.logits)
            self._rows.append(row)
        fresh = [row for row in self._rows if row.logits is not None]
        self._sample(fresh, torch.stack([row.logits for row in fresh if row.logits is not None]))
        for row in fresh:
            row.logits = None
        self._retire()

    def _prefill(self, requests: list[_Request]) -> None:
        """Compute prompts in rows after those in flight; [b, T] with T the longest remainder."""
        first = len(self._rows)
        starts = []
        for offset, request in enumerate(requests):
            known = self._prefixes.find(request.prompt[:-1])
            if known is not None:
                self._cache.write(first + offset, known)
            starts.append(0 if known is None else known.shape[-2])
        longest = max(len(r.prompt) - start for r, start in zip(requests, starts, strict=True))
        ids = torch.zeros(len(requests), longest, dtype=torch.long)
        for index, (request, start) in enumerate(zip(requests, starts, strict=True)):
            remainder = request.prompt[start:]
            ids[index, : len(remainder)] = torch.tensor(remainder)
        positions = torch.tensor(starts)[:, None] + torch.arange(longest)
        hidden = self._forward(ids, positions, first)
        last = torch.tensor([len(r.prompt) - s - 1 for r, s in zip(requests, starts, strict=True)])
        logits = self._model.lm_head(hidden[torch.arange(len(requests)), last])
        for request, row_logits in zip(requests, logits, strict=True):
            self._rows.append(_Row(request, list(request.prompt), logits=row_logits))

    def _step(self) -> None:
        """Extend every row by one token."""
        ids = torch.tensor([[row.token_ids[-1]] for row in self._rows])
        positions = torch.tensor([[len(row.token_ids) - 1] for row in self._rows])
        hidden = self._forward(ids, positions, first=0)
        self._sample(self._rows, self._model.lm_head(hidden[:, -1]))
        self._retire()

    def _forward(self, ids: Tensor, positions: Tensor, first: int) -> Tensor:
        """Hidden states [b, T, width] of rows first..first+b, whose keys and values are written."""
        reach = min(int(positions.max()), self._max_length) + 1
        mask = torch.arange(reach) <= positions[:, None, :, None]  # causal, [b, 1, T, L]
        self._cache.aim(first, positions, reach)
        output = self._model.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
        )
        hidden: Tensor = output.last_hidden_state
        return hidden

    def _sample(self, rows: list[_Row], logits: Tensor) -> None:
        """Draw a token for each row from its own stream; logits are [B, V]."""
        requests = [row.request for row in rows]
        drawn = draw(logits, [r.params for r in requests], [r.rng for r in requests])
        for row, token, logprob in zip(rows, *drawn, strict=True):
            row.append(token, logprob, self._codec)

    def _retire(self) -> None:
        """Answer finished rows, cache their keys and values, and close the gaps."""
        for index in reversed(range(len(self._rows))):
            row = self._rows[index]
            if row.finish_reason is None:
                continue
            # The last token was sampled but not read yet, so it has no keys and values.
            known = row.token_ids[:-1]
            self._prefixes.add(known, self._cache.read(index, len(known)))
            last = len(self._rows) - 1
            if index != last:
                self._cache.copy(last, index, len(self._rows[last].token_ids))
                self._rows[index] = self._rows[last]
            self._rows.pop()
            self._unanswered.discard(row.request)
            row.request.future.set_result(row.completion(self._version))

    def _fail_all(self, error: PolicyUnavailableError, cause: Exception | None = None) -> None:
        error.__cause__ = cause
        while not self._inbox.empty():
            if (request := self._inbox.get()) is not None:
                self._unanswered.add(request)
        for request in self._unanswered:
            request.future.set_exception(error)
        self._unanswered.clear()
        if self._swap is not None and not self._swap[2].done():
            self._swap[2].set_exception(error)


@dataclass(slots=True, eq=False)
class _Request:
    prompt: tuple[int, ...]
    params: SamplingParams
    max_length: int
    rng: random.Random
    deadline: float | None
    cancelled: threading.Event | None
    future: Future[Completion] = field(default_factory=Future)

    @property
    def unwanted(self) -> bool:
        """Whether nobody waits for it any more."""
        return is_unwanted(self.deadline, self.cancelled)


@dataclass(slots=True)
class _Row:
    """A completion in flight."""

    request: _Request
    token_ids: list[int]
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    logits: Tensor | None = None

    def append(self, token: int, logprob: float, codec: Codec) -> None:
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        params = self.request.params
        written = self.token_ids[-min(len(self.logprobs), _STOP_WINDOW) :]
        if params.stop and any(stop in codec.decode(written) for stop in params.stop):
            self.finish_reason = FinishReason.STOP
        elif len(self.logprobs) >= params.max_tokens or len(self.token_ids) >= self.request.max_length:
            self.finish_reason = FinishReason.LENGTH

    def completion(self, version: str) -> Completion:
        start = len(self.request.prompt)
        assert self.finish_reason is not None
        return Completion(tuple(self.token_ids[start:]), tuple(self.logprobs), self.finish_reason, version)
