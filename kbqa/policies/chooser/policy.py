"""An in-process engine for choosers: batches the decisions of many callers and encodes each text once.

One thread owns the model. It takes all waiting requests, encodes the texts that are not cached since the
last change of weights, and answers the requests with one pass of the head.
"""

from __future__ import annotations

import logging
import math
import queue
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kbqa.errors import PolicyUnavailableError
from kbqa.policies.base import Completion, FinishReason, Ranking, SamplingParams, is_unwanted
from kbqa.policies.chooser.encoding import Encoded, Ids
from kbqa.policies.chooser.model import Chooser, relations_of
from kbqa.policies.chooser.reading import Decision, Form, Words, decisions, form_of
from kbqa.policies.chooser.reranker import Reranker
from kbqa.policies.sampling import draw

logger = logging.getLogger(__name__)

_MAX_LENGTH = 32_768  # maximum tokens of an episode; most of them need no computation
_QUESTIONS, _RELATIONS = 1024, 16_384  # cached encodings: some 40 MB and 25 MB at a width of 384

K = TypeVar("K")


class ChooserPolicy:
    """The policy port over a `Chooser`; a completion is the number of one option.

    Args:
        version: full id of the version that the model holds.
        deterministic: whether the same decision must always give exactly the same numbers, whatever else
            is or was in a batch.

    Attributes:
        reranker: rates whole forms; None if the version has none.
    """

    def __init__(self, model: Chooser, version: str, *, deterministic: bool = False) -> None:
        self.reranker: Reranker | None = None
        self._model, self._version, self._deterministic = model, version, deterministic
        self._questions: _Kept[Ids] = _Kept(_QUESTIONS)
        self._relations: _Kept[Words] = _Kept(_RELATIONS)
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="policy-engine", daemon=True)
        self._thread.start()

    @property
    def max_length(self) -> int:
        return _MAX_LENGTH

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
        """As `Policy.generate`.

        Raises:
            ValueError: a prompt does not end with a list of options.
        """
        return [drawn.completions[0] for drawn in self._asked(prompts, params, deadline, cancelled)]

    def ranked(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Ranking]:
        """As `RankingPolicy.ranked`."""
        return self._asked(prompts, None, deadline, cancelled)

    def rated(self, episodes: Sequence[Sequence[int]]) -> list[float]:
        """As `RankingPolicy.rated`."""
        if self.reranker is None:
            return [0.0] * len(episodes)
        rating = _Rating([form_of(episode, self._model.vocabulary) for episode in episodes])
        self._put(rating)
        return rating.future.result()

    def swap(self, version: str, change: Callable[[Chooser], None]) -> None:
        """Let `change` replace the model's weights between two passes, and clear the encoded texts."""
        swap = _Swap(version, change)
        self._put(swap)
        swap.future.result()

    def close(self) -> None:
        """Stop computing; calls in flight fail."""
        self._closed = True
        self._inbox.put(None)
        self._thread.join(timeout=10)

    def _asked(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | None,
        deadline: float | None,
        cancelled: threading.Event | None,
    ) -> list[Ranking]:
        """The completions of each prompt, or the one that was sampled; see `_Request`."""
        request = _Request([self._last_decision(p) for p in prompts], params, deadline, cancelled)
        self._put(request)
        return request.future.result()

    def _put(self, work: _Work) -> None:
        self._inbox.put(work)
        if self._closed:
            self._refuse(PolicyUnavailableError("the policy engine is closed"))

    def _last_decision(self, prompt: Sequence[int]) -> Decision:
        for position, decision in decisions(prompt, self._model.vocabulary):
            if position == len(prompt) - 1:
                return decision
        raise ValueError(f"a prompt of {len(prompt)} tokens does not end with options to choose from")

    def _run(self) -> None:
        batch: list[_Work] = []
        failed = PolicyUnavailableError("the policy engine was closed")
        try:
            with torch.inference_mode():
                while not self._closed:
                    batch = self._waiting()
                    self._work(batch)
        except Exception as error:  # after any failure, no caller may wait for ever
            self._closed = True
            logger.exception("the policy engine failed")
            failed = PolicyUnavailableError(f"the policy engine failed: {error!r}")
        self._refuse(failed, batch)

    def _waiting(self) -> list[_Work]:
        """All waiting work; blocks until there is some."""
        waiting = [self._inbox.get()]
        while not self._inbox.empty():
            waiting.append(self._inbox.get())
        return [work for work in waiting if work is not None]

    def _work(self, waiting: Iterable[_Work]) -> None:
        requests, ratings = list[_Request](), list[_Rating]()
        for work in waiting:
            if isinstance(work, _Request):
                requests.append(work)
            elif isinstance(work, _Rating):
                ratings.append(work)
            else:
                self._answer(requests)
                requests = []
                self._apply(work)
        self._answer(requests)
        self._rate(ratings)

    def _apply(self, swap: _Swap) -> None:
        try:
            swap.change(self._model)
        except Exception as error:
            swap.future.set_exception(error)
            return
        self._version = swap.version
        self._questions.clear()
        self._relations.clear()
        swap.future.set_result(None)

    def _answer(self, requests: Sequence[_Request]) -> None:
        for request in requests:
            if is_unwanted(request.deadline, request.cancelled):
                aborted = Completion((), (), FinishReason.ABORTED, self._version)
                found = Ranking([] if request.params is None else [aborted])
                request.future.set_result([found for _ in request.decisions])
        if wanted := [request for request in requests if not request.future.done()]:
            self._compute(wanted)

    def _rate(self, ratings: Sequence[_Rating]) -> None:
        """Rate all forms in one pass; each call's by themselves if other rows may not change digits."""
        for together in [[one] for one in ratings] if self._deterministic else [ratings]:
            forms = [form for rating in together for form in rating.forms]
            found = [0.0] * len(forms)
            if forms and (reranker := self.reranker) is not None:
                found = reranker(forms).tolist()
            numbers = iter(found)
            for rating in together:
                rating.future.set_result([next(numbers) for _ in rating.forms])

    def _compute(self, requests: Sequence[_Request]) -> None:
        sampled = [request for request in requests if request.params is not None]
        ranking = [request for request in requests if request.params is None]
        asked = [decision for request in (*sampled, *ranking) for decision in request.decisions]
        rows = {decision: row for row, decision in enumerate(dict.fromkeys(asked))}
        if self._deterministic:
            # The other rows of a batch change the last digits of a sum.
            parts = [self._model([decision])[0] for decision in rows]
            logits = pad_sequence(parts, batch_first=True, padding_value=float("-inf"))
        else:
            logits = self._model(list(rows), self._encoded(list(rows)))
        logits = logits[[rows[decision] for decision in asked]]
        drawn = sum(len(request.decisions) for request in sampled)
        found = iter(
            [
                *self._drawn(sampled, asked[:drawn], logits[:drawn]),
                *self._ranked(asked[drawn:], logits[drawn:]),
            ]
        )
        for request in (*sampled, *ranking):
            request.future.set_result([next(found) for _ in request.decisions])

    def _drawn(
        self, requests: Sequence[_Request], asked: Sequence[Decision], logits: Tensor
    ) -> Iterator[Ranking]:
        """One completion of each decision."""
        params = [one.params for one in requests if one.params is not None for _ in one.decisions]
        numbers = [number for request in requests for number in range(len(request.decisions))]
        streams = [
            random.Random() if one.seed is None else random.Random(f"{one.seed}/{number}")
            for one, number in zip(params, numbers, strict=True)
        ]
        if asked:
            for decision, column, logprob in zip(asked, *draw(logits, params, streams), strict=True):
                yield Ranking([self._completion(decision, column, logprob)])

    def _ranked(self, asked: Sequence[Decision], logits: Tensor) -> Iterator[Ranking]:
        """All completions of each decision."""
        for decision, logprobs in zip(asked, logits.log_softmax(-1).tolist(), strict=True):
            options = range(len(decision.options))  # a longer row's have no probability
            yield Ranking(
                [
                    self._completion(decision, column, logprobs[column])
                    for column in sorted(options, key=logprobs.__getitem__, reverse=True)
                ],
                sum(
                    math.exp(logprobs[column]) for column in options if not decision.options[column].leads_on
                ),
            )

    def _completion(self, decision: Decision, column: int, logprob: float) -> Completion:
        token = decision.options[column].token
        return Completion((token,), (logprob,), FinishReason.STOP, self._version)

    def _encoded(self, asked: Sequence[Decision]) -> Encoded:
        """The encoded texts of decisions, from the cache or encoded now."""
        questions = list(dict.fromkeys(decision.question for decision in asked))
        relations = relations_of(asked)
        unknown = self._questions.missing(questions)
        if unknown:
            states, mask = self._model.tokens(unknown)
            for question, row, kept in zip(unknown, states, mask, strict=True):
                self._questions.keep(question, row[kept].clone())
        missing = self._relations.missing(relations)
        if missing:
            for words, vector in zip(missing, self._model.vectors(missing), strict=True):
                self._relations.keep(words, vector.clone())
        tokens = [self._questions[question] for question in questions]
        lengths = torch.tensor([len(states) for states in tokens], device=self._model.device)
        mask = torch.arange(int(lengths.max()), device=self._model.device) < lengths[:, None]
        encoded = Encoded(
            {question: place for place, question in enumerate(questions)},
            pad_sequence(tokens, batch_first=True),
            mask,
            self._model.distances(questions),
            {words: place for place, words in enumerate(relations)},
            torch.stack([self._relations[words] for words in relations])
            if relations
            else self._model.vectors([]),
        )
        self._questions.trim()
        self._relations.trim()
        return encoded

    def _refuse(self, error: PolicyUnavailableError, begun: Iterable[_Work] = ()) -> None:
        """Fail all unfinished and waiting requests."""
        refused = [*begun]
        while not self._inbox.empty():
            if (work := self._inbox.get()) is not None:
                refused.append(work)
        for work in refused:
            if not work.future.done():
                work.future.set_exception(error)


class _Kept(Generic[K]):
    """A cache of encoded texts, least recently used first; it may exceed its size until it is trimmed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, Tensor] = OrderedDict()

    def missing(self, keys: Iterable[K]) -> list[K]:
        found = []
        for key in keys:
            if key in self._entries:
                self._entries.move_to_end(key)
            else:
                found.append(key)
        return found

    def keep(self, key: K, value: Tensor) -> None:
        self._entries[key] = value

    def __getitem__(self, key: K) -> Tensor:
        return self._entries[key]

    def trim(self) -> None:
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()


@dataclass(slots=True, eq=False)
class _Request:
    """Attributes:
    params: how one completion of each decision is sampled; None ranks all.
    """

    decisions: list[Decision]
    params: SamplingParams | None
    deadline: float | None
    cancelled: threading.Event | None
    future: Future[list[Ranking]] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Swap:
    version: str
    change: Callable[[Chooser], None]
    future: Future[None] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Rating:
    forms: list[Form]
    future: Future[list[float]] = field(default_factory=Future)


_Work = _Request | _Swap | _Rating
