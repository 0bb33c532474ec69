"""How sure a policy is of an answer: the probability of its least likely choice, calibrated.

The probabilities of a policy's choices rank answers well, but they are no probabilities that these are
right: a policy that was trained by rewards is too sure of itself. Platt scaling (Platt 1999, "Probabilistic
outputs for support vector machines") maps their log-odds to one, with two numbers that are fitted on
questions that the policy was not trained on. On graphs that a policy does not know, the least likely choice
says more than the product of all choices, which falls with every hop (docs/measurements/reader.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbqa.trajectory import Trajectory, Turn, declines

_STEPS = 50  # of Newton's method, which needs five to ten
_ROUNDING = 1e-9  # of an F1
_RIDGE = 1e-6  # keeps the curvature invertible where all scores are alike
_LEAST = 1e-3  # a likelihood that is nearer to 0 or 1 says no more
_FEWEST = 20  # questions that a calibration needs

Choices = tuple[float, ...]
"""log p of each turn of an episode."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """P(right) = sigmoid(intercept + slope * log(p / (1 - p))), p being the least likelihood of a choice.

    Attributes:
        questions: how many it was fitted on.
        least: False in calibrations of earlier versions of kbqa: there, p is the product over all choices.
    """

    intercept: float
    slope: float
    questions: int
    least: bool = False

    def confidence(self, choices: Choices) -> float:
        """The probability that an answer is right, in (0, 1)."""
        log_likelihood = min(choices) if self.least else sum(choices)
        return float(_sigmoid(np.float64(self.intercept + self.slope * _log_odds(log_likelihood))))

    @classmethod
    def fit(cls, episodes: Sequence[Choices], right: Sequence[bool]) -> Calibration | None:
        """Fit by maximum likelihood; None for fewer than 20 questions, too few to say anything.

        Targets are (N+ + 1) / (N+ + 2) for right answers and 1 / (N- + 2) for wrong ones (Platt 1999, section
        2.2), so that the fit is finite even if all are right. The slope is not negative.
        """
        if len(right) < _FEWEST:
            return None
        hits, count = sum(right), len(right)
        targets = np.where(right, (hits + 1) / (hits + 2), 1 / (count - hits + 2))
        scores = np.column_stack([np.ones(count), [_log_odds(min(choices)) for choices in episodes]])
        weights = _logistic(scores, targets)
        if weights[1] < 0:  # by chance: more certain answers are not less often right
            weights = np.array([*_logistic(scores[:, :1], targets), 0.0])
        return cls(float(weights[0]), float(weights[1]), count, least=True)


def is_right(f1: float) -> bool:
    """Whether an F1 is that of answers which are exactly the gold answers."""
    return f1 > 1 - _ROUNDING


def choices_of(trajectory: Trajectory) -> Choices | None:
    """log p of each choice that led to an episode's answers; None if its engine reports no probabilities.

    A turn that declines counts as its opposite: the answers that follow are right only if it is wrong.
    """
    if not any(turn.logprobs for turn in trajectory.turns):
        return None
    return tuple(map(_log_likelihood, trajectory.turns))


def _log_odds(log_likelihood: float) -> float:
    likelihood = min(max(math.exp(log_likelihood), _LEAST), 1 - _LEAST)
    return math.log(likelihood / (1 - likelihood))


def _log_likelihood(turn: Turn) -> float:
    likelihood = sum(turn.logprobs)
    if not declines(turn.thought):
        return likelihood
    return math.log(max(-math.expm1(likelihood), _LEAST))


def calibration_error(confidences: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy, over bins of equal width.

    Guo et al. 2017, "On calibration of modern neural networks", equation 3.
    """
    sure, hit = np.asarray(confidences, float), np.asarray(right, float)
    places = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = [abs(float((sure - hit)[places == place].sum())) for place in range(bins)]
    return sum(gaps) / len(hit)


def _logistic(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Weights of a logistic regression on scores [N, D] and targets [N], by Newton's method."""
    weights = np.zeros(scores.shape[1])
    for _ in range(_STEPS):
        found = _sigmoid(scores @ weights)
        curvature = (scores * (found * (1 - found))[:, None]).T @ scores + _RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curvature, scores.T @ (targets - found))
        # A long step leaves the region where the curvature holds.
        weights = weights + step * min(1.0, 4 / max(float(np.abs(step).max()), 1e-12))
    return weights


def _sigmoid(values: np.ndarray | np.float64) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -500, 500))))
