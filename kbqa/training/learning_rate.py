"""Learning rates over a training: a linear rise, then constant or down a cosine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Decay = Literal["constant", "cosine"]


@dataclass(frozen=True, slots=True)
class LearningRate:
    """Nothing but the number of the step decides, so a training that is resumed goes on where it was.

    Attributes:
        peak: reached with the last step of the warm-up.
        decay: after the warm-up; `cosine` falls over half a period, to `floor` times the peak.
        warm_up_steps: steps of the rise.
        warm_up_share: the same as a share of all steps; the longer of the two counts.
    """

    peak: float
    decay: Decay = "constant"
    warm_up_steps: int = 0
    warm_up_share: float = 0.0
    floor: float = 0.0

    def at(self, step: int, of: int) -> float:
        """The rate of a step, counted from 0, of a training of so many."""
        rise = max(self.warm_up_steps, round(self.warm_up_share * of))
        if step < rise:
            return self.peak * (step + 1) / rise
        if self.decay == "constant":
            return self.peak
        progress = min(1.0, (step - rise) / max(1, of - rise))
        return self.peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress)))
