"""The messages between trainer and rollout workers, versioned, and their form on the queue."""

from kbqa.wire.encoding import MAX_MESSAGE_BYTES, decode, encode
from kbqa.wire.messages import (
    RUN_PATTERN,
    SCHEMA_VERSION,
    DeadLetter,
    FailureReason,
    Purpose,
    RolloutFailure,
    RolloutReply,
    RolloutRequest,
    Timings,
)
from kbqa.wire.queues import (
    BURIED_TASK,
    DELIVER_TASK,
    QUEUES,
    ROLL_OUT_TASK,
    ROLLOUTS,
    TRAJECTORIES,
    dead_letters_of,
)

__all__ = [
    "BURIED_TASK",
    "DELIVER_TASK",
    "MAX_MESSAGE_BYTES",
    "QUEUES",
    "ROLLOUTS",
    "ROLL_OUT_TASK",
    "RUN_PATTERN",
    "SCHEMA_VERSION",
    "TRAJECTORIES",
    "DeadLetter",
    "RolloutFailure",
    "FailureReason",
    "Purpose",
    "RolloutReply",
    "RolloutRequest",
    "Timings",
    "dead_letters_of",
    "decode",
    "encode",
]
