"""Look-ups, including the one-hop actions, with a cache of their answers as serialised JSON.

A look-up takes microseconds, and serialising its result takes as long again. The cache saves both; a cache
in Redis would be slower than computing the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from cachetools import LRUCache

from kbqa.kg.actions import Action, ActionResult, Success
from kbqa.kg.handlers import Surroundings
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.specs import Cost
from kbqa.kg.tools import execute
from services.kg_server.meter import ActionMeter
from services.kg_server.schemas import dump_result

# Memory of a cached answer in addition to its JSON: the key, objects, and entries of two dictionaries.
_ENTRY_BYTES = 450
_NEW, _KEPT = b'"cached":false,"elapsed_ms":', b'"cached":true,"elapsed_ms":'


class CachedAnswer(NamedTuple):
    """A cached answer: its labels in the metrics, and its JSON; if `timed`, without the time at its end."""

    action: str
    outcome: str
    json: bytes
    timed: bool


class LookUps:
    """Answers batches of look-ups; thread-safe.

    Answers are cached by the graph's version, the subgraph and the action as canonical JSON, in which `1`,
    `1.0` and `true` are different arguments.

    Args:
        max_bytes: size of the cache; the least recently used answers are dropped first.
    """

    def __init__(self, meter: ActionMeter, *, max_bytes: int) -> None:
        self._meter, self._kept = meter, _Kept(max_bytes)

    def answer(
        self,
        surroundings: Surroundings,
        batch: Sequence[dict[str, Any]],
        graph: str | None = None,
        *,
        fresh: bool = False,
        private: bool = False,
    ) -> list[bytes] | None:
        """The results as JSON, in order; None if an action costs more than a look-up.

        Args:
            batch: the actions of the request, not validated.
            graph: id of the per-question subgraph that restricts them.
            fresh: do not use cached answers.
            private: do not cache new answers.
        """
        began = time.perf_counter()
        try:
            prefix = orjson.dumps((surroundings.store.version, graph))
            keys = [prefix + orjson.dumps(action, option=orjson.OPT_SORT_KEYS) for action in batch]
        except orjson.JSONEncodeError:  # nested too deeply to be serialised again
            keys, fresh, private = [b""] * len(batch), True, True
        found = [None] * len(keys) if fresh else self._kept.get(keys)
        missing = [place for place, answer in enumerate(found) if answer is None]
        if not all(map(_is_look_up, (batch[place] for place in missing))):
            return None
        elapsed_s = (time.perf_counter() - began) / max(len(keys), 1)
        end = b"%.4f}" % (elapsed_s * 1000)
        self._meter.count_kept(((hit.action, hit.outcome) for hit in found if hit is not None), elapsed_s)
        made = self._make(surroundings, [batch[place] for place in missing], graph) if missing else []
        if not fresh:
            self._meter.count_missed(batch[place]["action"] for place in missing)
        if not private:
            self._kept.put((keys[place], answer) for place, (answer, _) in zip(missing, made, strict=True))
        new = iter(made)
        return [
            next(new)[1] if answer is None else answer.json + end if answer.timed else answer.json
            for answer in found
        ]

    def _make(
        self, surroundings: Surroundings, batch: Sequence[dict[str, Any]], graph: str | None
    ) -> list[tuple[CachedAnswer | None, bytes]]:
        """For each action: the answer to cache, or None, and the JSON to send."""
        actions = [to_action(action) for action in batch]
        results = execute(surroundings, actions, graph=graph)
        self._meter.count(actions, results)
        return [_rendered(action.name, result) for action, result in zip(actions, results, strict=True)]


def _is_look_up(action: dict[str, Any]) -> bool:
    spec = ACTIONS.find(action.get("action"))
    return spec is not None and spec.cost_of(action) is Cost.LOOK_UP


def to_action(action: dict[str, Any]) -> Action:
    """The `Action` of a JSON object, not validated."""
    arguments = dict(action)
    return Action(arguments.pop("action", ""), arguments)


def _rendered(name: str, result: ActionResult) -> tuple[CachedAnswer | None, bytes]:
    json = orjson.dumps(dump_result(result))
    if isinstance(result, Success):
        if result.details:
            return None, json
        return CachedAnswer(name, "ok", json[: json.rindex(_NEW)] + _KEPT, True), json
    return CachedAnswer(name, result.code, json, False), json


class _Kept:
    """LRU cache of answers, bounded by size; takes its lock once per batch."""

    def __init__(self, max_bytes: int) -> None:
        # One answer must not evict hundreds.
        self._max_answer_bytes = max_bytes // 256
        self._answers: LRUCache[bytes, CachedAnswer] = LRUCache(max_bytes, getsizeof=_size)
        self._lock = threading.Lock()

    def get(self, keys: Sequence[bytes]) -> list[CachedAnswer | None]:
        with self._lock:
            return list(map(self._answers.get, keys))

    def put(self, new: Iterable[tuple[bytes, CachedAnswer | None]]) -> None:
        with self._lock:
            for key, answer in new:
                if answer is not None and _size(answer) <= self._max_answer_bytes:
                    self._answers[key] = answer


def _size(answer: CachedAnswer) -> int:
    return _ENTRY_BYTES + len(answer.json)
