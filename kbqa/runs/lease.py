"""The lease of a home: one trainer at a time trains the runs under it, on whichever machine.

    runs/.trainer.lease    the home's id, who holds it, and its token, a number that grows with every holder

The holder keeps a lock on the file (flock). Its training process inherits the lock, so the home passes to
another trainer only when both have ended. On a file system without locks, and for a machine that was cut off
from a shared one and lost its lock without knowing, the token decides: whoever finds another one in the file
stops before it writes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from kbqa.errors import LeaseLostError, RunConflictError

logger = logging.getLogger(__name__)

LEASE_NAME = ".trainer.lease"

_LOOK_S = 1.0  # between two looks at the token
_TAKEN = (errno.EAGAIN, errno.EACCES)


class Lease:
    """A lease that this process holds.

    Attributes:
        token: higher than that of every earlier holder.
        home: id of the home; no other one has it.
        holder: name of this process, for people.
    """

    def __init__(self, descriptor: int, token: int, home: str, holder: str) -> None:
        self._descriptor, self.token, self.home, self.holder = descriptor, token, home, holder

    @classmethod
    def take(cls, runs: Path, holder: str) -> Lease:
        """Take the lease of a home.

        Args:
            runs: directory of the runs.
            holder: name of this process, for people.

        Raises:
            RunConflictError: another process holds it.
        """
        runs.mkdir(parents=True, exist_ok=True)
        path = runs / LEASE_NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                os.close(descriptor)
                raise RunConflictError(
                    f"{_read(path).get('holder', 'another trainer')} trains the runs under {runs}: this "
                    "trainer stands by until that one has ended"
                ) from error
            logger.warning("no lock on this file system; the newest trainer wins", extra={"path": str(path)})
        last = _read(path)
        number, home = last.get("token"), str(last.get("home") or uuid.uuid4().hex)
        token = number + 1 if isinstance(number, int) else 1
        record = {"home": home, "holder": holder, "token": token, "since": round(time.time(), 3)}
        text = json.dumps(record).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
        os.fsync(descriptor)
        return cls(descriptor, token, home, holder)

    def fileno(self) -> int:
        """The locked file; a child process that inherits it holds the lease, too."""
        return self._descriptor

    def release(self) -> None:
        """Let another process take it, once the children that inherited it have ended."""
        os.close(self._descriptor)


def fence(runs: Path, token: int, clock: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """A function to call before writing; it raises `LeaseLostError` once another process holds the lease.

    Args:
        token: of the lease under which this process works.
    """
    looked_at = -_LOOK_S

    def require_held() -> None:
        nonlocal looked_at
        if clock() - looked_at < _LOOK_S:
            return
        looked_at = clock()
        found = _read(runs / LEASE_NAME)
        if found.get("token", token) != token:
            raise LeaseLostError(
                f"{found.get('holder')} trains the runs under {runs} now: this process ends without writing "
                "anything more"
            )

    return require_held


def _read(path: Path) -> dict[str, object]:
    """What the file says; nothing while it cannot be read, or is being written."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
