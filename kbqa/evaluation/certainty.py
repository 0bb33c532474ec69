"""How well a policy's confidence in its answers holds on the questions of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbqa.confidence import Calibration, calibration_error
from kbqa.evaluation.evaluation import Record

_THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def measured(calibration: Calibration, records: Sequence[Record]) -> dict[str, Any] | None:
    """The calibration error, and what each threshold of confidence leaves, as JSON.

    Returns:
        `curve` has for each threshold the share of all questions that are answered (`coverage`) and the share
        of right answers among these (`accuracy`, null if there are none). None if no question has an answer
        whose probability is known.
    """
    sure = [
        (calibration.confidence(record.choices), record.is_right)
        for record in records
        if record.choices is not None and record.answers
    ]
    if not sure:
        return None
    curve = []
    for threshold in _THRESHOLDS:
        kept = [right for confidence, right in sure if confidence >= threshold]
        accuracy = sum(kept) / len(kept) if kept else None
        curve.append({"threshold": threshold, "coverage": len(kept) / len(records), "accuracy": accuracy})
    confidences, right = zip(*sure, strict=True)
    return {
        "questions": len(sure),
        "calibration_error": calibration_error(confidences, right),
        "curve": curve,
    }
