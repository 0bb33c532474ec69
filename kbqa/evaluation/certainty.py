"""How well a policy's confidence in its answers holds on the questions of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbqa.confidence import Calibration, calibration_error, is_withheld
from kbqa.evaluation.evaluation import Record

_THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def confidences(calibration: Calibration, records: Sequence[Record]) -> list[float | None]:
    """How sure a policy is of its answer to each question; None if there is none, or if nobody knows."""
    return [
        None if record.choices is None or not record.answers else calibration.confidence(record.choices)
        for record in records
    ]


def measured(calibration: Calibration, records: Sequence[Record]) -> dict[str, Any] | None:
    """The calibration error, and what each threshold of confidence leaves, as JSON.

    Returns:
        `curve` has for each threshold the share of all questions that are answered (`coverage`) and the share
        of right answers among these (`accuracy`, null if there are none). None if no question has an answer
        whose probability is known.
    """
    sure = [
        (confidence, calibration.presence(record.choices), record.is_right)
        for record, confidence in zip(records, confidences(calibration, records), strict=True)
        if confidence is not None and record.choices is not None
    ]
    if not sure:
        return None
    curve = []
    for threshold in _THRESHOLDS:
        kept = [
            right for confidence, presence, right in sure if not is_withheld(confidence, presence, threshold)
        ]
        accuracy = sum(kept) / len(kept) if kept else None
        curve.append({"threshold": threshold, "coverage": len(kept) / len(records), "accuracy": accuracy})
    confident, _, right = zip(*sure, strict=True)
    return {
        "questions": len(sure),
        "calibration_error": calibration_error(confident, right),
        "curve": curve,
    }
