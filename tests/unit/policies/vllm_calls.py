"""What tests ask of a policy in a vLLM server."""

from __future__ import annotations

from kbqa.policies.base import SamplingParams
from kbqa.policies.vllm import VllmPolicy
from kbqa.telemetry.metrics import Metrics
from kbqa.trajectory import Segment
from tests.unit.policies_fixtures import make_codec

CODEC = make_codec()


GENERATE = "/inference/v1/generate"


TIMEOUT_S = 60.0  # more than a busy machine takes for anything here


PROMPTLY_S = TIMEOUT_S / 2


def prompt(text: str) -> list[int]:
    return CODEC.encode([Segment(text)])


def write(policy: VllmPolicy, count: int = 1, max_tokens: int = 6):
    return policy.generate([prompt("who")] * count, SamplingParams(max_tokens, 200, seed=1))


def failures(metrics: Metrics, operation: str) -> float:
    return metrics.registry.get_sample_value("kbqa_engine_failures_total", {"operation": operation}) or 0.0
