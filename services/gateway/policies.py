"""The policy that answers: whichever is promoted, replaced while questions are being answered."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kbqa.errors import KbqaError, NoPolicyError
from kbqa.policy_store import PolicyVersion
from kbqa.serving.players import Players

logger = logging.getLogger(__name__)

# A version that could not be loaded is tried again after that; a newer one at once.
_RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A policy that answers.

    Attributes:
        version: full id, or the model name of an external model.
        recipe: name of the recipe that it was trained with, or plays.
        players: play its episodes.
        close: frees it; called once, when nobody uses it any more.
        alive: whether it can still answer.
    """

    version: str
    recipe: str
    players: Players
    close: Callable[[], None]
    alive: Callable[[], bool]


class Lease:
    """A policy that stays as it is until it is released, whatever is promoted meanwhile.

    Attributes:
        fallback: why it is not the first choice; None if it is.
    """

    def __init__(
        self, served: ServedPolicy, released: Callable[[], None], *, fallback: str | None = None
    ) -> None:
        self.served, self.fallback = served, fallback
        self._released = released

    def release(self) -> None:
        self._released()


class PolicySource(Protocol):
    """Where the gateway has its policy from."""

    def lease(self) -> Lease:
        """The policy that answers now.

        Raises:
            NoPolicyError: there is none (yet); says what to do.
        """
        ...

    def unready(self) -> str | None:
        """None if there is a policy, otherwise why not."""
        ...

    def start(self) -> None:
        """Begin to look for one; does not wait."""
        ...

    def stop(self) -> None:
        """Close it: whoever still uses it gets a `PolicyUnavailableError`."""
        ...


class FollowedPolicies:
    """Follows what is wanted: the pointer of a policy store, or a version that never changes.

    A newly wanted version gets an engine of its own; questions that are being answered
    finish on the old one, which is closed after the last of them. So each answer is the
    work of one version, the one that it names.

    Args:
        wanted: the version that should answer; may raise `KbqaError`.
        load: makes a version ready to serve; takes its time and may raise `KbqaError`.
        poll_s: how often it is asked what is wanted, in seconds.
    """

    def __init__(
        self,
        wanted: Callable[[], PolicyVersion],
        load: Callable[[PolicyVersion], ServedPolicy],
        *,
        poll_s: float,
    ) -> None:
        self._wanted, self._load, self._poll_s = wanted, load, poll_s
        self._lock = threading.Lock()
        self._current: _Held | None = None
        self._reason = "the policy is being loaded"
        self._failed: tuple[str, float] = ("", 0.0)  # version that could not be loaded, when
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="policy-switch", daemon=True)

    def start(self) -> None:
        """Begin to follow, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and close the policy: whoever still uses it gets a `PolicyUnavailableError`."""
        self._stopping.set()
        self._thread.join()
        with self._lock:
            held, self._current = self._current, None
        if held is not None:
            held.served.close()

    def lease(self) -> Lease:
        with self._lock:
            held = self._current
            if held is None:
                raise NoPolicyError(self._reason)
            held.users += 1
        return Lease(held.served, lambda: self._release(held))

    def unready(self) -> str | None:
        with self._lock:
            if self._current is None:
                return self._reason
            return None if self._current.served.alive() else "the policy engine failed and is built again"

    def refresh(self) -> None:
        """Look once which version is wanted, and serve that."""
        try:
            version = self._wanted()
        except KbqaError as error:
            self._explain(str(error))
            return
        held = self._current
        serving = held.served.version if held is not None and held.served.alive() else ""
        name, failed_at = self._failed
        if version.id == serving or (version.id == name and time.monotonic() - failed_at < _RETRY_S):
            return
        try:
            served = self._load(version)
        except KbqaError as error:
            self._failed = version.id, time.monotonic()
            self._explain(str(error))
            logger.error("policy cannot be loaded", extra={"version": version.id, "error": str(error)})
            return
        self._replace(_Held(served))
        logger.info("policy switched", extra={"version": version.id, "recipe": served.recipe})

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self.refresh()
            except Exception:
                # A surprise while one version is loaded must not end the watch for the next.
                logger.exception("cannot check for a new policy")
                self._explain("the policy cannot be loaded; the gateway's log says why")
            self._stopping.wait(self._poll_s)

    def _explain(self, reason: str) -> None:
        with self._lock:
            self._reason = reason

    def _replace(self, held: _Held) -> None:
        with self._lock:
            retired, self._current = self._current, held
        if retired is not None:
            self._release(retired)

    def _release(self, held: _Held) -> None:
        with self._lock:
            held.users -= 1
            idle = held.users == 0
        if idle:
            held.served.close()


@dataclass(slots=True)
class _Held:
    """A policy and how many hold it: every lease, and whoever calls it the current one."""

    served: ServedPolicy
    users: int = 1


class FixedPolicy:
    """One policy for good, such as a model of somebody else."""

    def __init__(self, served: ServedPolicy) -> None:
        self._served = served

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._served.close()

    def lease(self) -> Lease:
        return Lease(self._served, lambda: None)

    def unready(self) -> str | None:
        return None if self._served.alive() else f"{self._served.version} is closed"


class PoliciesInTurn:
    """The first source that can answer; a lease of any but the first says why not those before.

    A policy that fails in the midst of a question fails that question; from the next one on
    another answers, until it is there again.
    """

    def __init__(self, sources: Sequence[PolicySource]) -> None:
        self._sources = tuple(sources)

    def start(self) -> None:
        for source in self._sources:
            source.start()

    def stop(self) -> None:
        for source in self._sources:
            source.stop()

    def lease(self) -> Lease:
        reasons = list[str]()
        for source in self._sources:
            if (reason := source.unready()) is None:
                try:
                    lease = source.lease()
                except NoPolicyError as error:  # gone since
                    reason = str(error)
                else:
                    lease.fallback = "; ".join(reasons) or None
                    return lease
            reasons.append(reason)
        raise NoPolicyError("; ".join(reasons))

    def unready(self) -> str | None:
        reasons = [source.unready() for source in self._sources]
        return None if None in reasons else "; ".join(str(reason) for reason in reasons)
