"""The weights that a server is to hold, and how they get there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kbqa.policies.probe import Probe


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a policy version.

    Attributes:
        label: full id of the version with its run's name, which makes it unique.
        version: full id, as completions carry it.
        kind: the whole model, or a LoRA adapter.
        path: the directory of the weights, which the server can read.
        probe: the version's probe; None if it has none.
        sent: how they come from a sender instead; None if they do not.
    """

    label: str
    version: str
    kind: Literal["full", "lora"]
    path: Path
    probe: Probe | None
    sent: Sent | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """Whole weights that a sender sends.

    Attributes:
        meet: where the sender and so many processes of the server meet; may raise `PolicyUnavailableError`.
        sha256, size: of the file.
        verify: makes sure of the files, which are read instead if nothing arrives.
    """

    meet: Callable[[int], Mapping[str, Any]]
    sha256: str
    size: int
    verify: Callable[[], None]
