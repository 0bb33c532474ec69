"""Names that both ends of a queue must agree on. A task takes one argument, an encoded message."""

from __future__ import annotations

ROLLOUTS = "rollouts"
"""Queue of rollout requests: any worker may take one."""

TRAJECTORIES = "trajectories"
"""Queue of replies: the trainer takes them all."""

QUEUES = (ROLLOUTS, TRAJECTORIES)

ROLL_OUT_TASK = "kbqa.rollouts.roll_out"
DELIVER_TASK = "kbqa.trajectories.deliver"
BURIED_TASK = "kbqa.dead_letters.buried"
"""The task of a dead letter; no consumer takes it."""


def dead_letters_of(queue: str) -> str:
    """Queue of the messages of `queue` that nobody could process."""
    return f"{queue}.dead"
