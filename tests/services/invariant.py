"""THE invariant of training, as any run has to leave it behind."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.ledgers import read_ledger

_OUTCOMES = {"trained", "stale", "no_spread", "non_finite", "failed", "unanswered", "run_ended"}


def assert_every_group_occurs_once(directory: Path, view: dict, questions_per_step: int) -> dict[str, int]:
    """No gap and no repetition: the ids asked for are 0, 1, 2, …, each with one outcome."""
    ledger = read_ledger(directory)
    assert ledger["in_flight"] == []
    settled = ledger["settled"]
    assert sorted(settled) == [f"t{number:07d}" for number in range(len(settled))]
    assert {outcome for outcome, _ in settled.values()} <= _OUTCOMES
    # Each step of the surviving history consumed exactly its questions.
    steps = Counter(
        step for outcome, step in settled.values() if outcome in ("trained", "no_spread", "non_finite")
    )
    assert steps == dict.fromkeys(range(1, view["step"] + 1), questions_per_step)
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    rl_steps = [r["step"] for r in records if r["phase"] == "rl" and r["kind"] == "step"]
    assert rl_steps == list(range(1, view["step"] + 1))
    assert list((directory / "inbox").iterdir()) == []
    return Counter(outcome for outcome, _ in settled.values())
