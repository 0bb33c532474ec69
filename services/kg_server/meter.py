"""Metrics of actions, updated once per batch, because an update costs more than a one-hop action."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from functools import lru_cache

from kbqa.kg.actions import Action, ActionResult, Success
from kbqa.kg.retrieval import ACTIONS
from kbqa.telemetry.metrics import Metrics


class ActionMeter:
    """Counts actions by outcome, and measures their time."""

    def __init__(self, metrics: Metrics) -> None:
        self._batches = metrics.histogram("kbqa_kg_batch_size")
        # Cache the metric of each combination of labels; few combinations occur.
        self._actions = lru_cache(None)(metrics.counter("kbqa_kg_actions_total").labels)
        self._cache = lru_cache(None)(metrics.counter("kbqa_kg_cache_requests_total").labels)
        seconds = metrics.histogram("kbqa_kg_action_seconds")
        self._seconds = {name: seconds.labels(name) for name in ACTIONS}

    def batch(self, size: int) -> None:
        self._batches.observe(size)

    def count(self, actions: Sequence[Action], results: Sequence[ActionResult]) -> None:
        """Count executed actions."""
        outcomes: Tally[tuple[str, str]] = Tally()
        elapsed: dict[str, tuple[float, int]] = {}
        for action, result in zip(actions, results, strict=True):
            # Otherwise, every name that a policy invents would create a time series.
            name = action.name if ACTIONS.find(action.name) is not None else "unknown"
            if isinstance(result, Success):
                outcomes[name, "ok"] += 1
                total_ms, count = elapsed.get(name, (0.0, 0))
                elapsed[name] = total_ms + result.elapsed_ms, count + 1
            else:
                outcomes[name, result.code] += 1
        for (name, outcome), count in outcomes.items():
            self._actions(name, outcome).inc(count)
        for name, (total_ms, count) in elapsed.items():
            self._seconds[name].observe(total_ms / count / 1000)

    def count_kept(self, kept: Iterable[tuple[str, str]], elapsed_s: float) -> None:
        """Count answers from the cache.

        Args:
            kept: (action, outcome) of each answer.
            elapsed_s: seconds that each answer took.
        """
        for (name, outcome), count in Tally(kept).items():
            self._actions(name, outcome).inc(count)
            self._cache("memory", name, "hit").inc(count)
            if outcome == "ok":
                self._seconds[name].observe(elapsed_s)

    def count_missed(self, names: Iterable[str]) -> None:
        """Count actions whose answers were not in the cache."""
        for name, count in Tally(names).items():
            self._cache("memory", name, "miss").inc(count)
