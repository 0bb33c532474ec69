"""Who taught what, and how it is taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kbqa.corrections import Correction, CorrectionRecord, Earlier, Lesson
from kbqa.corrections.record import TaughtCorrection
from kbqa.errors import CorrectionsError, NoPolicyError
from kbqa.policy_store import PolicyStore

LONG_AGO = datetime.now(UTC) - timedelta(days=1)
ONE = Correction("c1", "Who?", ("a",), ("t",), "films", "ann", LONG_AGO)


def publish(store, run, number=1):
    def write(into):
        (into / "weights.txt").write_text(f"{run}/{number}")

    return store.publish(run, number, write, recipe={"name": "r"}, recipe_digest="d", step=0, metrics={})


def taught(record, began_with, version, *teachers, promoted=True):
    lesson = Lesson(
        run=version.run,
        version=version.id,
        began_with=f"{began_with.run}/{began_with.id}",
        time=datetime.now(UTC),
        earlier=Earlier(dataset="world", seed=3),
        corrections=tuple(TaughtCorrection(id=f"of {by}", by=by, time=LONG_AGO) for by in teachers),
        before={"earlier": 0.9},
        after={"earlier": 0.9},
        promoted=promoted,
    )
    record.keep(lesson)
    return lesson


def test_what_a_teacher_said_is_taken_back_and_what_it_says_later_counts_again(tmp_path):
    record = CorrectionRecord(tmp_path)
    others = replace(ONE, id="c2", teacher="bob")
    assert record.valid([ONE, others]) == [ONE, others]
    revocation = record.revoke("ann")
    assert CorrectionRecord(tmp_path).revocations() == [revocation]
    later = replace(ONE, id="c3", time=revocation.time + timedelta(seconds=1))
    assert record.valid([ONE, others, later]) == [others, later]


def test_the_version_before_the_first_lesson_of_a_teacher_is_found(tmp_path):
    record, store = CorrectionRecord(tmp_path), PolicyStore(tmp_path / "policies")
    first, second, third, fourth = (publish(store, f"run-{number}") for number in range(4))
    taught(record, first, second, "bob")
    taught(record, second, third, "ann", "bob")
    taught(record, third, fourth, "bob", "ann")
    assert record.untaught(fourth, store) is None  # nothing was taken back
    record.revoke("ann")
    assert record.untaught(fourth, store) == second
    assert record.untaught(third, store) == second
    assert record.untaught(second, store) is None
    record.revoke("bob")
    assert record.untaught(fourth, store) == first
    assert record.taught(fourth) == {"of ann", "of bob"}
    assert record.taught(second) == {"of bob"}
    assert [lesson.run for lesson in record.lessons()] == ["run-1", "run-2", "run-3"]


def test_a_lesson_with_the_same_corrections_is_found_from_both_ends(tmp_path):
    record, store = CorrectionRecord(tmp_path), PolicyStore(tmp_path / "policies")
    first, second = publish(store, "first"), publish(store, "second")
    lesson = taught(record, first, second, "ann")
    same = replace(ONE, id="of ann")
    assert record.lesson_of(first, [same]) == lesson  # it was not promoted: the next night would try again
    assert record.lesson_of(second, [same]) == lesson
    assert record.lesson_of(first, [same, ONE]) is None
    assert record.lesson_of(publish(store, "third"), [same]) is None


def test_a_version_that_is_gone_cannot_be_promoted_again(tmp_path):
    record, store = CorrectionRecord(tmp_path), PolicyStore(tmp_path / "policies")
    gone, after = publish(store, "gone"), publish(store, "after")
    taught(record, gone, after, "ann")
    record.revoke("ann")
    for path in sorted(gone.path.rglob("*"), reverse=True):
        path.unlink()
    with pytest.raises(NoPolicyError, match="was deleted: promote another one"):
        record.untaught(after, store)


@pytest.mark.parametrize("name", ["revocations", "lessons"])
@pytest.mark.parametrize("content", ["{}", '{"by": "ann", "ti', ""])
def test_a_damaged_record_is_not_read_as_an_empty_one(tmp_path, name, content):
    record = CorrectionRecord(tmp_path)
    path = record.directory / name / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(CorrectionsError, match=r"x.json is damaged: restore it from a copy"):
        (record.lessons if name == "lessons" else record.revocations)()
    assert path.read_text() == content
