"""Ends a process group when the supervisor that started it ends or dies.

    python -m services.cli.reaper GRACE_S < pipe

The reaper leads the group and reads a pipe whose other end the supervisor holds. When the supervisor closes
the pipe or dies, even by SIGKILL, the reaper reads end of file and terminates every other process of the
group, including grandchildren.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import psutil  # type: ignore[import-untyped, unused-ignore]

_POLL_S = 0.05


def main() -> None:
    """Wait for the end of standard input, then end the group."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    deadline = time.monotonic() + float(sys.argv[1])
    if others():
        os.killpg(0, signal.SIGTERM)
    while members := others():
        if time.monotonic() > deadline:
            for pid in members:
                _kill(pid)
        time.sleep(_POLL_S)


def others() -> list[int]:
    """The other living processes of this process's group."""
    return [pid for pid in psutil.pids() if pid != os.getpid() and _is_member(pid)]


def _is_member(pid: int) -> bool:
    try:
        in_group = os.getpgid(pid) == os.getpgrp()
        return in_group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.Error):
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main()
