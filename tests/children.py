"""Processes that a test starts and may kill, forked from one that has imported torch already.

A child runs a function of a module below `tests`. Unlike a fork of the test's own process, it inherits no
threads, connections or state of other tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import wait

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "tests.unit.corrections.scene",
        "tests.unit.runs.mortal",
        "tests.unit.training.dying",
        "tests.unit.training.sharded",
    ]
)

Child = _FORKS.Process
Pipe = _FORKS.Pipe


def play(*children: Child) -> list[int | None]:
    """Start children and wait for them; once one has failed, the others are killed. Returns exit codes."""
    for child in children:
        child.start()
    try:
        while (alive := [child for child in children if child.is_alive()]) and not _failed(children):
            wait([child.sentinel for child in alive])
    finally:
        for child in children:
            child.kill()
            child.join()
    return [child.exitcode for child in children]


def _failed(children: Sequence[Child]) -> bool:
    return any(child.exitcode for child in children)
