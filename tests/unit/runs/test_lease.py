"""One trainer holds a home; the next one waits for its processes, and one that was replaced notices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kbqa.errors import LeaseLostError, RunConflictError
from kbqa.runs.lease import LEASE_NAME, Lease, fence


def test_a_second_one_is_refused_by_name_until_the_first_lets_go(tmp_path: Path) -> None:
    first = Lease.take(tmp_path, "trainer a-1")
    with pytest.raises(RunConflictError, match="trainer a-1 trains the runs under .* stands by"):
        Lease.take(tmp_path, "trainer b-2")
    first.release()
    second = Lease.take(tmp_path, "trainer b-2")
    assert second.token > first.token
    second.release()


def test_a_child_holds_it_after_its_parent(tmp_path: Path) -> None:
    lease = Lease.take(tmp_path, "trainer a-1")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, pass_fds=(lease.fileno(),))
    lease.release()
    with pytest.raises(RunConflictError):
        Lease.take(tmp_path, "trainer b-2")
    child.communicate(b"")
    Lease.take(tmp_path, "trainer b-2").release()


def test_an_old_holder_finds_a_newer_token_before_it_writes(tmp_path: Path) -> None:
    now = [0.0]
    old = Lease.take(tmp_path, "trainer a-1")
    require_held = fence(tmp_path, old.token, lambda: now[0])
    require_held()
    old.release()  # as if the server of a shared disk had given its lock up
    Lease.take(tmp_path, "trainer b-2").release()
    require_held()  # it looked a moment ago
    now[0] = 2.0
    with pytest.raises(LeaseLostError, match="trainer b-2 trains the runs"):
        require_held()


@pytest.mark.parametrize("text", [b"", b"{", b"[]"])
def test_a_file_that_is_being_written_proves_nothing(tmp_path: Path, text: bytes) -> None:
    lease = Lease.take(tmp_path, "trainer a-1")
    (tmp_path / LEASE_NAME).write_bytes(text)
    fence(tmp_path, lease.token)()
    lease.release()
    Lease.take(tmp_path, "trainer b-2").release()
