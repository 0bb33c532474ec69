"""One server of a fleet behind a circuit breaker (M. Nygard, Release It!, 2nd edition, section 5.2)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from kbqa.errors import KbqaError, PolicyUnavailableError
from kbqa.policies.base import Completion, FinishReason, SamplingParams
from kbqa.policies.vllm.policy import VllmPolicy
from kbqa.policies.vllm.weights import Weights

logger = logging.getLogger(__name__)

_LOSSES = 16  # completions lost in a row after which a server gets no more
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # between trials; each pause is twice the one before


class Circuit(StrEnum):
    """Whether a server gets completions: all, none, or none but the one that tries it."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Replica:
    """A server, what it is computing, and whether it is used.

    The circuit opens when many completions in a row are lost, or when the server turns out to have lost its
    weights. It is then tried after growing pauses, by the probe of the wanted version: that is a completion
    whose result is known. A server that was started anew first gets its weights back.

    Args:
        changed: called after each change of the circuit.

    Attributes:
        load: completions in flight.
    """

    def __init__(self, policy: VllmPolicy, changed: Callable[[], None]) -> None:
        self.policy, self._changed = policy, changed
        self.circuit, self.load = Circuit.CLOSED, 0
        self._losses = 0
        self._wanted: Weights | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def hold(self, weights: Weights) -> None:
        """As `VllmPolicy.hold`; if it fails, the circuit opens, and trials go on with these weights.

        Raises:
            As `VllmPolicy.hold`.
        """
        self._wanted = weights
        try:
            self.policy.hold(weights)
        except KbqaError as error:
            self._open(str(error))
            raise
        self._close_circuit()

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, **stopping: Any
    ) -> list[Completion]:
        """As `VllmPolicy.generate`, but if the call fails, all its completions are lost."""
        with self._lock:
            self.load += len(prompts)
        try:
            completions = self.policy.generate(prompts, params, **stopping)
        except PolicyUnavailableError as error:
            self._open(str(error))
            return lost(len(prompts), str(error))
        finally:
            with self._lock:
                self.load -= len(prompts)
        self._count(completions)
        return completions

    def close(self) -> None:
        """Close the policy, and stop trying it."""
        self._stopping.set()
        self.policy.close()

    def _count(self, completions: Sequence[Completion]) -> None:
        for completion in completions:
            if completion.finish_reason is FinishReason.LOST:
                self._losses += 1
            elif completion.finish_reason is not FinishReason.ABORTED:
                self._losses = 0
        if self._losses >= _LOSSES:
            self._open(
                f"{self._losses} completions in a row were lost, the last one: {completions[-1].detail}"
            )

    def _open(self, reason: str) -> None:
        with self._lock:
            if self.circuit is not Circuit.CLOSED or self._stopping.is_set():
                return
            self.circuit = Circuit.OPEN
        logger.warning("an engine is not used for now", extra={"engine": self.policy.url, "reason": reason})
        self._changed()
        threading.Thread(target=self._try, name="vllm-trial", daemon=True).start()

    def _close_circuit(self) -> None:
        with self._lock:
            self.circuit, self._losses = Circuit.CLOSED, 0
        self._changed()

    def _try(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.wait(pause_s) and not self.policy.superseded:
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            with self.policy.changing:
                if self.circuit is Circuit.CLOSED or self._wanted is None:  # weights were loaded since
                    return
                self.circuit = Circuit.HALF_OPEN
                try:
                    self.policy.renew(self._wanted)
                except Exception as error:  # whatever it was, the server is tried again
                    self.circuit = Circuit.OPEN
                    logger.warning(
                        "an engine fails again", extra={"engine": self.policy.url, "reason": str(error)}
                    )
                    continue
                self._close_circuit()
            logger.info("an engine is used again", extra={"engine": self.policy.url})
            return


def lost(count: int, detail: str) -> list[Completion]:
    """Completions that no engine gave."""
    return [Completion((), (), FinishReason.LOST, "", detail)] * count
