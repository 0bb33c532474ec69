"""Learning rate schedules: a linear warm-up, then constant or cosine decay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Decay = Literal["constant", "cosine"]


@dataclass(frozen=True, slots=True)
class LearningRate:
    """A schedule that depends only on the step number, so that a resumed run continues it exactly.

    Attributes:
        peak: reached with the last step of the warm-up.
        decay: after the warm-up; `cosine` falls over half a period, to `floor` times the peak.
        warm_up_steps: steps of the linear warm-up.
        warm_up_share: the same as a share of all steps; the longer of the two applies.
    """

    peak: float
    decay: Decay = "constant"
    warm_up_steps: int = 0
    warm_up_share: float = 0.0
    floor: float = 0.0

    def at(self, step: int, of: int) -> float:
        """The learning rate of `step`, counted from 0, out of `of` steps."""
        rise = max(self.warm_up_steps, round(self.warm_up_share * of))
        if step < rise:
            return self.peak * (step + 1) / rise
        if self.decay == "constant":
            return self.peak
        progress = min(1.0, (step - rise) / max(1, of - rise))
        return self.peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress)))
