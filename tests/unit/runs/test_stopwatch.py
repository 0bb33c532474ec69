"""What a request costs: time by what it waits for, and tokens."""

from __future__ import annotations

import time

import pytest

from kbqa.errors import PolicyUnavailableError
from kbqa.policies.base import Completion, FinishReason, SamplingParams
from kbqa.runs.stopwatch import Stopwatch

_PAUSE_S = 0.05
COMPLETION = Completion((7, 8), (-0.5, -0.5), FinishReason.STOP, "v000001-0")


class Slow:
    """Policy and graph at once; takes its time."""

    max_length = 77

    def generate(self, prompts, params, *, deadline=None, cancelled=None):
        time.sleep(_PAUSE_S)
        if not prompts:
            raise PolicyUnavailableError("gone")
        return [COMPLETION for _ in prompts]

    def execute(self, kg, actions, *, graph=None):
        time.sleep(_PAUSE_S)
        return [(kg, graph, action) for action in actions]


def test_engine_and_graph_are_timed_apart_and_answer_as_before():
    stopwatch = Stopwatch()
    policy, tools = stopwatch.policy(Slow()), stopwatch.tools(Slow())
    params = SamplingParams(max_tokens=1, max_total_tokens=9)
    assert policy.max_length == 77
    assert policy.generate([[1], [2]], params) == [COMPLETION, COMPLETION]
    assert (stopwatch.engine_s >= _PAUSE_S, stopwatch.graph_s) == (True, 0.0)
    assert stopwatch.sampled_tokens == 4
    assert tools.execute("world", ["a"], graph="g") == [("world", "g", "a")]
    assert stopwatch.graph_s >= _PAUSE_S


def test_time_in_an_engine_that_fails_counts_too():
    stopwatch = Stopwatch()
    with pytest.raises(PolicyUnavailableError):
        stopwatch.policy(Slow()).generate([], SamplingParams(max_tokens=1, max_total_tokens=9))
    assert stopwatch.engine_s >= _PAUSE_S
