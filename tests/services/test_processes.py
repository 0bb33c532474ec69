"""What supervisors of child processes share."""

from __future__ import annotations

import pytest

from services import processes
from services.processes import bound_log


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_LONGEST_LOG", 6)
    return tmp_path / "train.log"


def test_a_long_log_is_put_aside_while_its_process_goes_on_writing(log):
    before, seen = log.with_name("train.log.1"), []
    bound_log(log)  # there is none yet
    with log.open("ab", buffering=0) as file:
        for text in ("one ", "two ", "three ", "four ", "five "):
            file.write(text.encode())
            bound_log(log)
            seen.append((log.read_text(), before.read_text() if before.exists() else ""))
    assert seen == [
        ("one ", ""),
        ("", "one two "),
        ("three ", "one two "),  # six bytes are no more than six
        ("", "three four "),
        ("five ", "three four "),
    ]


def test_without_room_for_a_copy_a_long_log_is_emptied_all_the_same(log, monkeypatch):
    def copyfile(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(processes.shutil, "copyfile", copyfile)
    log.write_text("long enough")
    bound_log(log)
    assert log.read_text() == ""
