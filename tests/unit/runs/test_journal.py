"""What a run tells while it goes on, and after a restart."""

from __future__ import annotations

import pytest

from kbqa.runs import journal as journals
from kbqa.runs.directory import RunDirectory
from kbqa.runs.journal import Journal


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.records: list[dict] = []
        self.forgotten: list[tuple[str, int]] = []

    def write(self, record) -> None:
        self.records.append(dict(record))

    def forget_after(self, phase: str, step: int) -> None:
        self.forgotten.append((phase, step))

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path)


def test_records_are_numbered_and_go_to_the_file_and_to_every_sink(directory):
    kept = Kept()
    journal = Journal(directory, [kept])
    journal.enter("rl", of=9)
    journal.record("step", {"loss": 1.0}, step=1)
    journal.record("evaluation", {"f1": 0.5})
    records = directory.records()
    assert [(r["seq"], r["kind"], r["phase"], r["step"], r["of"]) for r in records] == [
        (1, "step", "rl", 1, 9),
        (2, "evaluation", "rl", 1, 9),
    ]
    assert kept.records == records


def test_what_a_restore_has_undone_is_forgotten_by_file_and_sinks_and_nothing_else(directory):
    kept = Kept()
    journal = Journal(directory, [kept])
    journal.enter("cold_start", of=9)
    journal.record("step", {}, step=5)
    journal.enter("rl", of=9)
    for step in (1, 2, 3):
        journal.record("step", {}, step=step)
    journal.forget_after(2)
    assert [(r["phase"], r["step"]) for r in directory.records()] == [("cold_start", 5), ("rl", 1), ("rl", 2)]
    assert kept.forgotten == [("rl", 2)]


def test_a_journal_goes_on_behind_half_a_line(directory):
    before = Journal(directory)
    before.enter("rl", of=9)
    before.record("step", {"loss": 1.0}, step=1)
    before.keep(f1={"base": 0.25})
    with directory.metrics_path.open("a") as file:
        file.write('{"seq": 2, "ti')
    after = Journal(directory)
    assert (after.phase, after.results) == ("rl", {"f1": {"base": 0.25}})
    after.record("resumed", {})
    assert [(r["seq"], r["kind"]) for r in directory.records()] == [(1, "step"), (2, "resumed")]


@pytest.mark.parametrize(("pause_s", "told"), [(1000.0, 0), (0.0, 7)])
def test_progress_is_written_now_and_then(directory, monkeypatch, pause_s, told):
    journal = Journal(directory)
    journal.enter("warm_up", of=9)
    monkeypatch.setattr(journals, "_PROGRESS_S", pause_s)
    journal.advance(7)
    assert directory.progress()["step"] == told


def test_the_end_and_a_failure_are_progress(directory):
    journal = Journal(directory)
    journal.fail("the graph is gone")
    assert directory.progress()["error"] == "the graph is gone"
    journal.finish()
    assert (directory.progress()["phase"], directory.progress()["error"]) == ("done", None)
    assert directory.progress()["seconds"] >= 0
