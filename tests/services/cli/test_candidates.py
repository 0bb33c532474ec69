"""What `kbqa eval` evaluates."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbqa.errors import ConfigurationError
from kbqa.judges import ChatJudge, MatchingJudge
from services.cli.candidates import open_candidate


def test_a_baseline_may_be_judged_by_a_model(monkeypatch):
    """KG-R1 and Learning-to-Refine let a model judge the answers of their baselines."""
    for name in ("KBQA_JUDGE_MODEL", "KBQA_JUDGE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KBQA_GATEWAY_CHAT_URL", "http://127.0.0.1:9/v1")

    def judge():
        return open_candidate("openai:m", Path(), None, recipe=None, baseline="zero-shot-cot").judge

    assert isinstance(judge(), MatchingJudge)
    monkeypatch.setenv("KBQA_JUDGE_MODEL", "gpt-5-mini")
    with pytest.raises(ConfigurationError, match="set KBQA_JUDGE_URL or OPENAI_BASE_URL to the URL"):
        judge()
    monkeypatch.setenv("KBQA_JUDGE_URL", "http://127.0.0.1:9/judge/v1")
    assert judge() == ChatJudge("gpt-5-mini", "http://127.0.0.1:9/judge/v1")
