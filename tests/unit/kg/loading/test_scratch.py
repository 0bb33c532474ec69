"""Temporary graphs go with their process, or with the next one if it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.loading.scratch import ScratchDirectory

KEEPS_ONE = """
import sys
from pathlib import Path
from kbqa.kg.loading.scratch import ScratchDirectory
scratch = ScratchDirectory(Path(sys.argv[1]))
(scratch.path / "graph").mkdir()
(scratch.path / "graph" / "file").write_text("x")
sys.stdout.write(scratch.path.name + chr(10))
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture
def neighbour(tmp_path: Path):
    """Another process with a scratch directory, and the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", KEEPS_ONE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    yield process, tmp_path / process.stdout.readline().strip()
    process.kill()
    process.communicate()


def test_what_a_killed_process_leaves_is_removed_by_the_next_one_and_nothing_else(
    tmp_path, neighbour
) -> None:
    process, left = neighbour
    other = tmp_path / "kbqa-nothing"
    other.mkdir()
    with ScratchDirectory(tmp_path):
        assert (left / "graph" / "file").exists()  # it is in use
    process.kill()
    process.wait()
    assert left.exists()
    with ScratchDirectory(tmp_path) as mine:
        assert sorted(tmp_path.iterdir()) == sorted([mine.path, other])
    assert list(tmp_path.iterdir()) == [other]


def test_a_directory_that_another_process_is_just_making_is_left_alone(tmp_path) -> None:
    young, old = tmp_path / "kbqa-graph-young", tmp_path / "kbqa-graph-old"
    for directory in (young, old):
        directory.mkdir()
    os.utime(old, (0, 0))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "kbqa-graph-link").symlink_to(elsewhere)
    ScratchDirectory(tmp_path).close()
    assert (young.exists(), old.exists(), elsewhere.exists()) == (True, False, True)


def test_a_store_of_given_triples_removes_its_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = OxigraphStore.from_triples([("a", "r", "b")])
    assert store.tail_entities(["a"], ["r"], limit=1).total == 1
    assert len(list(tmp_path.glob("kbqa-graph-*"))) == 1
    del store
    assert list(tmp_path.glob("kbqa-graph-*")) == []
