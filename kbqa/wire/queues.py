"""Names that both ends of a queue must agree on. A task takes one argument, an encoded message."""

from __future__ import annotations

ROLLOUTS = "rollouts"
"""Queue of rollout requests: any worker may take one."""

TRAJECTORIES = "trajectories"
"""Queue of replies: the trainer takes them all."""

ROLL_OUT_TASK = "kbqa.rollouts.roll_out"
DELIVER_TASK = "kbqa.trajectories.deliver"
