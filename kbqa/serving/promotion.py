"""Follows the promoted version, so that a bad one does no harm.

A version serves only after its engine has loaded and verified it. If that fails, the last good version goes
on, or is loaded again. If a version passes, but then answers far fewer questions than the one before, the one
before comes back. Such a version is not tried again until another one is promoted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial

from kbqa.errors import KbqaError, NoPolicyError, PolicyChangingError, PolicyUnavailableError
from kbqa.policy_store import PolicyVersion
from kbqa.serving.policies import Lease, ServedPolicy
from kbqa.serving.trial import Outcome, Trial

logger = logging.getLogger(__name__)

_RETRY_S = (30.0, 3600.0)  # first and longest pause before a version that could not be loaded is tried again
_MOST_FAILURES = 3  # to load a version, while another one serves
_DRAIN_S = 60.0  # for questions in progress, before an engine that holds one version only gets another
_POLL_S = 0.05

LOADING = "the policy is being loaded"
"""Why a source is not ready at first; nothing has failed yet."""


@dataclass(slots=True)
class _Held:
    """A policy and its number of holders: leases, and the reference to the current policy."""

    served: ServedPolicy
    users: int = 1


@dataclass(slots=True)
class _Refused:
    """A version that could not be loaded, or was rolled back.

    Attributes:
        failures: attempts that failed because of the version itself.
        retry_at: time of the next attempt; None is never.
        is_away: whether the last attempt failed because an engine or store did not answer.
    """

    failures: int = 0
    retry_at: float | None = 0.0
    is_away: bool = False


class FollowedPolicies:
    """Follows the wanted version: the promoted one of a policy store, or a fixed one.

    A newly wanted version gets its own engine. Questions in progress finish on the old one, which is closed
    after the last of them. If the engine can hold one version only, new questions wait until those in
    progress have finished and the engine has changed. Each answer therefore comes from a single version, the
    one that it names.

    Args:
        wanted: returns the version that should answer; may raise `KbqaError`.
        load: loads a version; may take long and raise `KbqaError`.
        poll_s: seconds between calls of `wanted`.
        prepare: brings a version's files to this machine and checks them, while another one serves; may
            raise `KbqaError`.
        hold: declares which versions are in use.
        exclusive: whether loading a version ends the one that is loaded.
        turn: waited for before an engine of one version changes, and held until it answers again; the event
            ends the wait.
        trial: judges versions after their promotion; None judges none.
        rolled_back: called when a version has failed its trial.
        drain_s: seconds that questions in progress have before an engine of one version changes.
        clock: seconds, by which failed versions are tried again.
    """

    def __init__(
        self,
        wanted: Callable[[], PolicyVersion],
        load: Callable[[PolicyVersion], ServedPolicy],
        *,
        poll_s: float,
        prepare: Callable[[PolicyVersion], None] = lambda _: None,
        hold: Callable[[Sequence[PolicyVersion]], None] = lambda _: None,
        exclusive: Callable[[PolicyVersion], bool] = lambda _: False,
        turn: Callable[[threading.Event], AbstractContextManager[None]] = lambda _: nullcontext(),
        trial: Trial | None = None,
        rolled_back: Callable[[], None] = lambda: None,
        drain_s: float = _DRAIN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanted, self._load, self._poll_s = wanted, load, poll_s
        self._prepare, self._hold, self._exclusive, self._turn = prepare, hold, exclusive, turn
        self._trial, self._rolled_back, self._drain_s = trial, rolled_back, drain_s
        self._clock = clock
        self._lock = threading.Lock()
        self._current: _Held | None = None
        self._changing = False
        self._reason = LOADING
        self._good: PolicyVersion | None = None  # the last one that served and was not rolled back
        self._before: PolicyVersion | None = None  # the one before it
        self._latest = ""  # the id that was wanted last
        self._refused: dict[str, _Refused] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="policy-switch", daemon=True)

    def start(self) -> None:
        """Start to follow, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and close the policy: whoever still uses it gets a `PolicyUnavailableError`."""
        self._stopping.set()
        self._thread.join()
        with self._lock:
            held, self._current = self._current, None
        if held is not None:
            held.served.close()

    def lease(self, kg: str | None = None, /) -> Lease:
        with self._lock:
            if self._changing:
                raise PolicyChangingError("another policy version is taking over: ask again in a moment")
            held = self._current
            if held is None:
                raise NoPolicyError(self._reason)
            held.users += 1
        return Lease(
            held.served, partial(self._release, held), count=partial(self._count, held.served.version)
        )

    def unready(self) -> str | None:
        with self._lock:
            if self._changing:
                return None
            if self._current is None:
                return self._reason
            served = self._current.served
        if not served.alive():
            return "the policy engine failed and is built again"
        return None if served.available() else "the policy engine does not answer, and is tried again"

    def refresh(self) -> None:
        """Check once which version is wanted, and serve it, or the last good one if it cannot serve."""
        try:
            wanted = self._wanted()
        except KbqaError as error:
            if str(error) != self._reason:
                logger.warning("no policy to load", extra={"error": str(error)})
            self._explain(str(error))
            return
        if wanted.id != self._latest:
            self._latest = wanted.id
            self._refused.pop(wanted.id, None)  # it was promoted again
        self._judge(wanted)
        with ExitStack() as turn:
            try:
                if not self._serve(wanted, turn) and self._good is not None:
                    before = self._current
                    if self._serve(self._good, turn) and self._current is not before:
                        self._works_otherwise(wanted)
            finally:
                with self._lock:
                    self._changing = False

    def _count(self, version: str, outcome: Outcome) -> None:
        if self._trial is not None:
            self._trial.count(version, outcome)

    def _judge(self, wanted: PolicyVersion) -> None:
        """Go back to the version before if the wanted one has failed its trial."""
        if self._trial is None or self._before is None or self._good is None or self._good.id != wanted.id:
            return
        if (verdict := self._trial.verdict()) is not None:
            to = self._before
            logger.error("policy rolled back", extra={"version": wanted.id, "to": to.id, "reason": verdict})
            self._refused[wanted.id] = _Refused(retry_at=None)
            self._good, self._before = to, None
            self._rolled_back()

    def _serve(self, version: PolicyVersion, turn: ExitStack) -> bool:
        """Let a version answer, unless it was refused; returns whether it does.

        Args:
            turn: holds the turn, if there is one.
        """
        refused = self._refused.get(version.id)
        if refused is not None and (refused.retry_at is None or self._clock() < refused.retry_at):
            return False
        held = self._current
        if held is not None and held.served.version == version.id and held.served.alive():
            return True
        try:
            self._hold([one for one in (version, self._good) if one is not None])
            self._prepare(version)
            if held is not None and self._exclusive(version):
                turn.enter_context(self._turn(self._stopping))
                self._retire(held)
            served = self._load(version)
        except KbqaError as error:
            self._refuse(version, error)
            return False
        self._replace(_Held(served))
        self._refused.pop(version.id, None)
        if self._good is not None and version.id != self._good.id:
            self._before = self._good
            if self._trial is not None:
                self._trial.begin(version.id, self._before.id)
        self._good = version
        logger.info("policy switched", extra={"version": version.id, "recipe": served.recipe})
        return True

    def _refuse(self, version: PolicyVersion, error: KbqaError) -> None:
        """Remember that a version could not be loaded, and when to try again."""
        self._explain(str(error))
        logger.error("policy cannot be loaded", extra={"version": version.id, "error": str(error)})
        refused = self._refused.setdefault(version.id, _Refused())
        refused.is_away = isinstance(error, PolicyUnavailableError)
        if refused.is_away:  # and may be back soon
            refused.retry_at = self._clock() + _RETRY_S[0]
        else:
            self._blame(version, refused)

    def _works_otherwise(self, version: PolicyVersion) -> None:
        """Blame a version for which the engine seemed to be away, and which has just loaded another one."""
        refused = self._refused.get(version.id)
        if refused is not None and refused.is_away:
            self._blame(version, refused)

    def _blame(self, version: PolicyVersion, refused: _Refused) -> None:
        """Count a failure of a version, and try it again later, or never."""
        first, longest = _RETRY_S
        refused.failures += 1
        replaced = self._good is not None and self._good.id != version.id
        if replaced and refused.failures >= _MOST_FAILURES:
            refused.retry_at = None
        else:
            refused.retry_at = self._clock() + min(first * 2.0 ** (refused.failures - 1), longest)

    def _retire(self, held: _Held) -> None:
        """Let questions in progress finish while new ones wait, then close their policy."""
        with self._lock:
            self._changing = True
        deadline = time.monotonic() + self._drain_s
        while held.users > 1 and time.monotonic() < deadline and not self._stopping.is_set():
            time.sleep(_POLL_S)
        with self._lock:
            self._current = None
        self._release(held)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self.refresh()
            except Exception:
                # An unexpected error with one version must not prevent the next one from being loaded.
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
