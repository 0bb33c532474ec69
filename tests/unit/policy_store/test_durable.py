"""A file is created once, whatever the file system can do."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbqa.policy_store.durable import append_line, create_file, exists_now, sweep
from tests.network_file_system import CachedAttributes


@pytest.fixture
def without_links(monkeypatch):
    """A file system that has no hard links, as SMB shares and some FUSE file systems."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "link", refuse)


def test_without_hard_links_the_first_file_stays(without_links, tmp_path: Path) -> None:
    path = tmp_path / "t1.json"
    assert create_file(path, b"first")
    assert not create_file(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_without_hard_links_only_one_of_many_writers_creates_the_file(without_links, tmp_path: Path) -> None:
    for round_ in range(20):
        path = tmp_path / f"{round_}.json"
        with ThreadPoolExecutor(8) as threads:
            created = list(threads.map(lambda n, path=path: create_file(path, b"%d" % n), range(8)))
        assert sum(created) == 1
        assert path.read_bytes() == b"%d" % created.index(True)


def test_a_writer_that_died_without_hard_links_is_swept_away(without_links, tmp_path: Path) -> None:
    path = tmp_path / "t1.json"
    (tmp_path / ".aside-claim-t1.json").touch()
    assert not create_file(path, b"x")
    sweep(tmp_path)
    assert create_file(path, b"x")


def test_other_errors_are_not_taken_for_missing_links(monkeypatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="Input/output"):
        create_file(tmp_path / "t1.json", b"x")
    assert list(tmp_path.iterdir()) == []


def test_what_another_machine_made_or_removed_is_noticed_whatever_is_cached(monkeypatch, tmp_path) -> None:
    removed, made = tmp_path / "removed", tmp_path / "made"
    removed.touch()
    with CachedAttributes().caching(monkeypatch):
        assert (removed.exists(), made.exists()) == (True, False)
        os.unlink(removed)
        os.mknod(made)
        assert (removed.exists(), made.exists()) == (True, False), "as on NFS"
        assert (exists_now(removed), exists_now(made)) == (False, True)
        assert not exists_now(tmp_path / "no" / "directory")


def test_appended_lines_are_whole_and_never_more_than_there_is_room_for(tmp_path):
    file = tmp_path / "lines"
    assert append_line(file, b"one")
    file.write_bytes(b"one\ntw")  # the writer died
    assert append_line(file, b"three", max_bytes=13)
    assert file.read_bytes() == b"one\ntw\nthree\n"
    assert not append_line(file, b"", max_bytes=13)
    assert file.read_bytes() == b"one\ntw\nthree\n"
