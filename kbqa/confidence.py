"""How sure a policy is of an answer: the probabilities of its choices, calibrated.

The probabilities of a policy's choices rank answers well, but they are no probabilities that these are
right: a policy that was trained by rewards is too sure of itself. Platt scaling (Platt 1999, "Probabilistic
outputs for support vector machines") maps their log-odds to one, with two numbers that are fitted on
questions that the policy was not trained on. On graphs that a policy does not know, the least likely choice
says more than the product of all choices, which falls with every hop (docs/measurements/reader.md).

Two things can be wrong with an answer, and a beam search tells them apart: the graph may lack the fact, or
the policy may have taken another form for the one that is asked for. Of the former, the probability of
declining says something; of the latter, how likely the episodes with other answers were. Each is scaled by
itself: P(right) = P(there) P(right | there).

An answer to a question whose fact is missing is worse than none, so whether it is given depends on the
probability of declining, too (`is_withheld`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from kbqa.trajectory import Trajectory, Turn, declines

_STEPS = 50  # of Newton's method, which needs five to ten
_ROUNDING = 1e-9  # of an F1
_RIDGE = 1e-6  # keeps the curvature invertible where all scores are alike
# A likelihood or a share that is nearer to 0 or 1 says no more.
_LEAST, _LEAST_PRESENCE, _LEAST_SHARE = 1e-3, 1e-4, 1e-6
_FEWEST = 20  # questions that a calibration needs
_LACKING = 0.05  # of the questions that people ask, the share whose fact the graph is taken to lack


class Choices(NamedTuple):
    """How likely the choices of an episode were.

    Attributes:
        log_likelihoods: log p of each turn. A turn that declines counts as its opposite: the answers that
            follow are right only if it is wrong.
        share, presence: as those of a `Search`; None if there was none.
    """

    log_likelihoods: tuple[float, ...]
    share: float | None = None
    presence: float | None = None

    @property
    def total(self) -> float:
        """log p of the episode."""
        return sum(self.log_likelihoods)


@dataclass(frozen=True, slots=True)
class Scaling:
    """P = sigmoid(intercept + slope * log-odds)."""

    intercept: float
    slope: float

    def probability(self, log_odds: float) -> float:
        return float(_sigmoid(np.float64(self.intercept + self.slope * log_odds)))

    @classmethod
    def fit(cls, log_odds: Sequence[float], true: Sequence[bool]) -> Self:
        """Fit by maximum likelihood.

        Targets are (N+ + 1) / (N+ + 2) for what is true and 1 / (N- + 2) for what is not (Platt 1999, section
        2.2), so that the fit is finite even if all are true. The slope is not negative.
        """
        hits, count = sum(true), len(true)
        targets = np.where(true, (hits + 1) / (hits + 2), 1 / (count - hits + 2))
        scores = np.column_stack([np.ones(count), log_odds])
        weights = _logistic(scores, targets)
        if weights[1] < 0:  # by chance: what is more certain is not less often true
            weights = np.array([*_logistic(scores[:, :1], targets), 0.0])
        return cls(float(weights[0]), float(weights[1]))


@dataclass(frozen=True, slots=True)
class SearchCalibration:
    """How sure a policy is of an answer that a beam search found.

    Attributes:
        there: whether the graph has the fact, from the log-odds of its presence.
        right: whether the answers are right if it has, from the log-odds of their share.
    """

    there: Scaling
    right: Scaling

    @classmethod
    def fit(cls, episodes: Sequence[Choices], right: Sequence[bool], lacking: Sequence[Choices]) -> Self:
        """Fit on searched episodes.

        Far more of these may lack their fact than of the questions that people ask, so the odds of presence
        are corrected for the share (King and Zeng 2001, "Logistic regression in rare events data", section
        4.1).

        Args:
            right: whether each episode's answers are exactly the gold answers.
            lacking: of episodes about graphs that lack the fact that is asked for; at least one.
        """
        presences = [one.presence for one in (*episodes, *lacking) if one.presence is not None]
        shares = [one.share for one in episodes if one.share is not None]
        there = [True] * len(episodes) + [False] * len(lacking)
        sampled = Scaling.fit(list(map(_presence_odds, presences)), there)
        odds = (1 - _LACKING) / _LACKING * len(lacking) / len(episodes)
        return cls(
            Scaling(sampled.intercept + math.log(odds), sampled.slope),
            Scaling.fit(list(map(_share_odds, shares)), right),
        )

    def confidence(self, choices: Choices) -> float:
        """The probability that an answer is right, in (0, 1)."""
        assert choices.presence is not None
        assert choices.share is not None
        is_there = self.there.probability(_presence_odds(choices.presence))
        return is_there * self.right.probability(_share_odds(choices.share))


@dataclass(frozen=True, slots=True)
class Calibration:
    """P(right) = sigmoid(intercept + slope * log(p / (1 - p))), p being the least likelihood of a choice.

    Attributes:
        questions: how many it was fitted on.
        least: False in calibrations of earlier versions of kbqa: there, p is the product over all choices.
        search: for answers that a beam search found; None if that was not measured.
    """

    intercept: float
    slope: float
    questions: int
    least: bool = False
    search: SearchCalibration | None = None

    def confidence(self, choices: Choices) -> float:
        """The probability that an answer is right, in (0, 1)."""
        if self.search is not None and choices.share is not None:
            return self.search.confidence(choices)
        log_likelihood = min(choices.log_likelihoods) if self.least else choices.total
        return Scaling(self.intercept, self.slope).probability(_log_odds(log_likelihood))

    def presence(self, choices: Choices) -> float | None:
        """How likely it is that the graph has the fact, in the policy's view; None if that says nothing.

        A policy that has learned freely from rewards may decline at random, since it is made to choose all
        the same. Its searches were not measured, so `search` is None.
        """
        return None if self.search is None else choices.presence

    @classmethod
    def fit(
        cls, episodes: Sequence[Choices], right: Sequence[bool], search: SearchCalibration | None = None
    ) -> Calibration | None:
        """Fit on episodes without a search; None for fewer than 20, too few to say anything.

        Args:
            right: whether each episode's answers are exactly the gold answers.
            search: what was fitted on searched episodes.
        """
        if len(right) < _FEWEST:
            return None
        alone = Scaling.fit([_log_odds(min(one.log_likelihoods)) for one in episodes], right)
        return cls(alone.intercept, alone.slope, len(right), least=True, search=search)


def is_right(f1: float) -> bool:
    """Whether an F1 is that of answers which are exactly the gold answers."""
    return f1 > 1 - _ROUNDING


def choices_of(trajectory: Trajectory) -> Choices | None:
    """How likely the choices were that led to an episode's answers; None if its engine does not say."""
    if not any(turn.logprobs for turn in trajectory.turns):
        return None
    likelihoods, search = log_likelihoods(trajectory.turns), trajectory.search
    return Choices(likelihoods) if search is None else Choices(likelihoods, search.share, search.presence)


def is_withheld(confidence: float, presence: float | None, least: float) -> bool:
    """Whether answers are shown as candidates only.

    Args:
        confidence: the probability that they are right.
        presence: as of `Choices`.
        least: what both have to reach; 0 withholds nothing.
    """
    return confidence < least or (presence is not None and presence < least)


def log_likelihoods(turns: Sequence[Turn]) -> tuple[float, ...]:
    """log p of each turn, as `Choices` counts them."""
    return tuple(map(_log_likelihood, turns))


def _log_odds(log_likelihood: float) -> float:
    return _logit(math.exp(log_likelihood), _LEAST)


def _share_odds(share: float) -> float:
    return _logit(share, _LEAST_SHARE)


def _presence_odds(presence: float) -> float:
    return _logit(presence, _LEAST_PRESENCE)


def _logit(probability: float, least: float) -> float:
    """Log-odds of a probability, which counts as at least `least`, and as at most 1 - `least`."""
    probability = min(max(probability, least), 1 - least)
    return math.log(probability / (1 - probability))


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
