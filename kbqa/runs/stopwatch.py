"""Measures a request: the time its episodes wait, and the tokens that the policy generates."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kbqa.kg.actions import Action, ActionResult, GraphTools
from kbqa.policies.base import Completion, Policy, SamplingParams


class Stopwatch:
    """Measures one request, which one thread plays.

    Attributes:
        engine_s: time spent waiting for completions, including the engine's queue.
        graph_s: time spent waiting for the graph, by episodes and by the reward.
        sampled_tokens: generated tokens, including those of pruned branches.
    """

    def __init__(self) -> None:
        self.engine_s = self.graph_s = 0.0
        self.sampled_tokens = 0

    def policy(self, policy: Policy) -> Policy:
        """The policy, its time taken."""
        return _TimedPolicy(policy, self)

    def tools(self, tools: GraphTools) -> GraphTools:
        """The tools, their time taken."""
        return _TimedTools(tools, self)

    @contextmanager
    def engine(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.engine_s += time.perf_counter() - began

    @contextmanager
    def graph(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.graph_s += time.perf_counter() - began


class _TimedPolicy:
    def __init__(self, policy: Policy, stopwatch: Stopwatch) -> None:
        self._policy, self._stopwatch = policy, stopwatch

    @property
    def max_length(self) -> int:
        return self._policy.max_length

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Completion]:
        with self._stopwatch.engine():
            completions = self._policy.generate(prompts, params, deadline=deadline, cancelled=cancelled)
        self._stopwatch.sampled_tokens += sum(len(completion.token_ids) for completion in completions)
        return completions


class _TimedTools:
    def __init__(self, tools: GraphTools, stopwatch: Stopwatch) -> None:
        self._tools, self._stopwatch = tools, stopwatch

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        with self._stopwatch.graph():
            return self._tools.execute(kg, actions, graph=graph)
