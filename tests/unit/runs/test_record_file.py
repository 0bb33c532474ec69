"""Records are read from the end, or once each, whatever happens to the file meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbqa.policy_store.durable import write_file
from kbqa.runs.record_file import FollowedRecords, RecordFile


def lines(*numbers: int, padding: int = 0) -> str:
    return "".join(json.dumps({"seq": n, "text": "x" * padding}) + "\n" for n in numbers)


def numbers(records) -> list[int]:
    return [record["seq"] for record in records]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.mark.parametrize(
    "padding", [0, 1000, 70_000]
)  # many records a block, and blocks smaller than a record
def test_records_are_found_from_the_end(path: Path, padding: int) -> None:
    path.write_text(lines(*range(1, 201), padding=padding) + '{"seq": 201, "te')
    file = RecordFile(path)
    assert numbers(file.since(0)) == list(range(1, 201))
    assert numbers(file.since(198)) == [199, 200]
    assert numbers(file.newest(3)) == [198, 199, 200]
    assert numbers(file.newest(1000)) == list(range(1, 201))


def test_only_the_end_of_a_long_file_is_read(path: Path) -> None:
    path.write_text("not JSON\n" + lines(*range(1, 3001), padding=100))
    assert numbers(RecordFile(path).since(2990)) == list(range(2991, 3001))


def test_nothing_is_read_of_a_file_without_a_whole_line(path: Path) -> None:
    assert RecordFile(path).since(0) == []
    path.write_text('{"seq": 1')
    assert RecordFile(path).newest(3) == []


@pytest.mark.parametrize("padding", [0, 1000, 70_000])
def test_what_is_undone_is_cut_off_with_half_a_line_and_nothing_before(path: Path, padding: int) -> None:
    before = "not JSON\n" + lines(*range(1, 199), padding=padding)
    path.write_text(before + lines(199, 200, padding=padding) + '{"seq": 201, "te')
    file = RecordFile(path)
    file.cut()
    assert path.read_text() == before + lines(199, 200, padding=padding)
    file.cut(lambda record: record["seq"] in (100, 199, 200))  # 100 is behind one that stays
    assert path.read_text() == before
    path.write_text(lines(1, 2) + "{")
    file.cut(lambda _: True)
    assert path.read_text() == ""


def test_without_a_whole_line_nothing_stays_and_without_a_file_there_is_none(path: Path) -> None:
    RecordFile(path).cut()
    assert not path.exists()
    path.write_text('{"seq": 1')
    RecordFile(path).cut()
    assert path.read_text() == ""


def test_a_follower_gets_each_record_once(path: Path) -> None:
    followed = FollowedRecords(path)
    assert followed.new() == (False, [])
    path.write_text(lines(1, 2) + '{"seq": 3, ')
    assert numbers(followed.new()[1]) == [1, 2]
    with path.open("a") as file:
        file.write('"text": ""}\n' + lines(4))
    assert numbers(followed.new()[1]) == [3, 4]
    assert followed.new() == (False, [])


def test_a_follower_sees_that_records_were_undone(path: Path) -> None:
    followed = FollowedRecords(path)
    path.write_text(lines(1, 2, 3))
    followed.new()
    RecordFile(path).cut(lambda record: record["seq"] == 3)
    rewritten, records = followed.new()
    assert (rewritten, numbers(records)) == (True, [1, 2])
    with path.open("a") as file:
        file.write(lines(3))
    assert followed.new() == (False, [{"seq": 3, "text": ""}])
    RecordFile(path).cut(lambda record: record["seq"] > 1)
    with path.open("a") as file:
        file.write(lines(4, 5))  # the file is as long as before
    rewritten, records = followed.new()
    assert (rewritten, numbers(records)) == (True, [1, 4, 5])
    write_file(path, b"")
    assert followed.new() == (True, [])
    path.write_text(lines(1))
    assert numbers(followed.new()[1]) == [1]
