"""Several vLLM servers that hold the same version, as one policy.

The episodes of one question go to one server, which has their common prefix in its cache: rendezvous
hashing (Thaler and Ravishankar, 1998), with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018), so
that no server waits while others queue.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import blake2b

from kbqa.errors import KbqaError, PolicyUnavailableError
from kbqa.policies.base import Completion, FinishReason, SamplingParams
from kbqa.policies.vllm.policy import VllmPolicy
from kbqa.policies.vllm.replica import Circuit, Replica, lost
from kbqa.policies.vllm.weights import Weights
from kbqa.telemetry.metrics import Metrics

_SLACK = 1.25  # load of a server, relative to the mean, above which a question goes to another one
_POLL_S = 0.1  # how soon a cancellation is noticed


class Fleet:
    """A policy that is computed by one or more servers; `hold` must be called first.

    A server that fails is left out until it works again. What it lost is computed once more by another one;
    with a single server it stays lost. While none works, calls wait.

    Args:
        patience_s: how long a call waits for a server that works, in seconds; then its completions are lost.
    """

    def __init__(self, policies: Sequence[VllmPolicy], metrics: Metrics, *, patience_s: float) -> None:
        self._changed = threading.Condition()
        self._replicas = [Replica(policy, self._tell) for policy in policies]
        self._working = metrics.gauge("kbqa_engine_servers_working")
        self._patience_s = patience_s
        self._open = True

    @property
    def max_length(self) -> int:
        return min(replica.policy.max_length for replica in self._usable() or self._replicas)

    @property
    def alive(self) -> bool:
        """Whether it may work later, if not now: servers that fail are tried until they work.

        It may not once it is closed, or another policy's weights have replaced its own.
        """
        return self._open and not all(replica.policy.superseded for replica in self._replicas)

    @property
    def available(self) -> bool:
        """Whether a server works."""
        return self.alive and bool(self._usable())

    def hold(self, weights: Weights) -> None:
        """Load weights into all servers at the same time, as `VllmPolicy.hold`.

        Those that fail are left out until it succeeds.

        Raises:
            PolicyMismatchError, PolicyUnavailableError: all failed; this is the first one's error.
        """
        with ThreadPoolExecutor(len(self._replicas), thread_name_prefix="vllm-weights") as threads:
            holds = [threads.submit(replica.hold, weights) for replica in self._replicas]
        errors = [error for held in holds if (error := held.exception()) is not None]
        if unexpected := [error for error in errors if not isinstance(error, KbqaError)]:
            raise unexpected[0]
        if len(errors) == len(self._replicas):
            raise errors[0]

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Completion]:
        """As `Policy.generate`."""
        stopping = {"deadline": deadline, "cancelled": cancelled}
        first = self._await_one(params.affinity, deadline, cancelled)
        if first is None:
            return lost(len(prompts), self._none_works())
        completions = first.generate(prompts, params, **stopping)
        again = [n for n, c in enumerate(completions) if c.finish_reason is FinishReason.LOST]
        other = self._choose(params.affinity, but=first) if again else None
        if other is not None:
            # Its siblings have used the streams of the first seed.
            seed = None if params.seed is None else random.Random(f"{params.seed}/again").getrandbits(31)
            retried = other.generate([prompts[n] for n in again], replace(params, seed=seed), **stopping)
            for n, completion in zip(again, retried, strict=True):
                completions[n] = completion
        return completions

    def close(self) -> None:
        """As `VllmPolicy.close`, for all."""
        self._open = False
        for replica in self._replicas:
            replica.close()
        self._tell()

    def _await_one(
        self, affinity: str, deadline: float | None, cancelled: threading.Event | None
    ) -> Replica | None:
        """A server that works; None if there is none in time.

        Raises:
            PolicyUnavailableError: none will work again.
        """
        until = min(deadline or float("inf"), time.monotonic() + self._patience_s)
        with self._changed:
            while self.alive:
                if (replica := self._choose(affinity)) is not None:
                    return replica
                if time.monotonic() >= until or (cancelled is not None and cancelled.is_set()):
                    return None
                self._changed.wait(_POLL_S)
        raise PolicyUnavailableError("the policy is closed, or another one has taken its place in vLLM")

    def _choose(self, affinity: str, *, but: Replica | None = None) -> Replica | None:
        usable = [replica for replica in self._usable() if replica is not but]
        if not usable:
            return None
        most = _SLACK * sum(replica.load for replica in usable) / len(usable)
        preferred = sorted(usable, key=lambda replica: _rank(affinity, replica.policy.url))
        return next((replica for replica in preferred if replica.load <= most), preferred[0])

    def _usable(self) -> list[Replica]:
        return [replica for replica in self._replicas if replica.circuit is Circuit.CLOSED]

    def _tell(self) -> None:
        self._working.set(len(self._usable()))
        with self._changed:
            self._changed.notify_all()

    def _none_works(self) -> str:
        urls = ", ".join(replica.policy.url for replica in self._replicas)
        return f"no vLLM server works ({urls}): each is tried again until it does; the log says what fails"


def _rank(affinity: str, url: str) -> bytes:
    return blake2b(f"{affinity} {url}".encode(), digest_size=8).digest()
