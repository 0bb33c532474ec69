"""The messages between trainer and rollout workers, versioned, and their form on the queue."""

from kbqa.wire.encoding import MAX_MESSAGE_BYTES, decode, encode
from kbqa.wire.messages import (
    RUN_PATTERN,
    SCHEMA_VERSION,
    Failure,
    FailureReason,
    Purpose,
    RolloutReply,
    RolloutRequest,
    Timings,
)
from kbqa.wire.queues import DELIVER_TASK, ROLL_OUT_TASK, ROLLOUTS, TRAJECTORIES

__all__ = [
    "DELIVER_TASK",
    "MAX_MESSAGE_BYTES",
    "ROLLOUTS",
    "ROLL_OUT_TASK",
    "RUN_PATTERN",
    "SCHEMA_VERSION",
    "TRAJECTORIES",
    "Failure",
    "FailureReason",
    "Purpose",
    "RolloutReply",
    "RolloutRequest",
    "Timings",
    "decode",
    "encode",
]
