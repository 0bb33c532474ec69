"""Decisions about made questions: what is saved, what counts, and what becomes of the file."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from kbqa.datasets.records import write_questions
from kbqa.datasets.reviews import (
    QuestionChangedError,
    Review,
    ReviewFileError,
    Verdict,
    WordingError,
    digest,
)
from kbqa.errors import DatasetError
from kbqa.trajectory import Hop, Question


def made(number, text=""):
    return Question(
        f"films-{number}",
        text or f"who directed Tale {number} ?",
        (f"Person {number}",),
        (f"Tale {number}",),
        "films",
        path=(Hop("directed_by"),),
    )


QUESTIONS = [made(number) for number in range(20)]


@pytest.fixture
def file(tmp_path):
    write_questions(tmp_path / "films.jsonl", QUESTIONS)
    return tmp_path / "films.jsonl"


def decide(review, number, verdict, wording=None):
    return review.decide(f"films-{number}", digest(QUESTIONS[number]), verdict, wording)


def test_what_is_rejected_goes_and_new_words_stay(file):
    review = Review(file)
    decide(review, 1, Verdict.REJECTED)
    decide(review, 2, Verdict.ACCEPTED, "  Who made Tale 2? ")
    decide(review, 3, Verdict.ACCEPTED, QUESTIONS[3].text)
    decide(review, 4, Verdict.REJECTED)
    decide(review, 4, Verdict.OPEN)  # taken back
    kept = Review(file).kept()
    assert [question.id for question in kept] == [one.id for one in QUESTIONS if one.id != "films-1"]
    assert (kept[1].text, kept[1].wording) == ("Who made Tale 2?", "review")
    assert (kept[1].answers, kept[1].path) == (QUESTIONS[2].answers, QUESTIONS[2].path)
    assert kept[2:] == QUESTIONS[3:]
    progress = Review(file).progress()
    assert (progress.questions, progress.accepted, progress.rejected) == (20, 2, 1)
    assert (progress.reworded, progress.lapsed) == (1, 0)


def test_a_sample_is_random_and_the_same_again_even_without_some_lines(file):
    def ids(seed=0):
        return [question.id for question, _ in Review(file).sample(8, seed)]

    first = ids()
    assert first == ids() != ids(seed=1)
    assert len(set(first)) == 8
    assert Counter(one for seed in range(50) for one in ids(seed)).keys() == {one.id for one in QUESTIONS}
    write_questions(file, [one for one in QUESTIONS if one.id != first[3]])
    assert ids()[:7] == first[:3] + first[4:]


def test_decisions_hold_for_the_question_that_was_shown_alone(file):
    review = Review(file)
    for number in (1, 2, 3):
        decide(review, number, Verdict.REJECTED)
    changed = [made(2, "who is the maker of Tale 2 ?"), *QUESTIONS[3:]]  # 1 is gone, 2 says something else
    write_questions(file, changed)
    assert [question.id for question in review.kept()] == ["films-2", *(q.id for q in QUESTIONS[4:])]
    assert review.progress().lapsed == 2
    for number in (1, 2):
        with pytest.raises(QuestionChangedError, match="load the page again"):
            decide(review, number, Verdict.ACCEPTED)
    review.decide("films-2", digest(changed[0]), Verdict.ACCEPTED)
    assert review.progress().lapsed == 1


@pytest.mark.parametrize(
    ("wording", "told"),
    [
        ("   ", "on one line of 1 to 1000"),
        ("who\nis it", "on one line"),
        ("a" * 1001, "1000 characters"),
        ("Who directed Tale 7?", "question films-7 says the same"),
    ],
)
def test_words_that_cannot_be_those_of_a_question_are_refused(file, wording, told):
    with pytest.raises(WordingError, match=told):
        decide(Review(file), 2, Verdict.ACCEPTED, wording)
    assert not Review(file).decisions_path.exists()


def test_the_new_words_of_another_question_are_taken_too(file):
    decide(Review(file), 1, Verdict.ACCEPTED, "Who made the first?")
    with pytest.raises(WordingError, match="films-1"):
        decide(Review(file), 2, Verdict.ACCEPTED, "who made the first")
    decide(Review(file), 2, Verdict.ACCEPTED, QUESTIONS[1].text)  # nobody has those any more


@pytest.mark.parametrize("cut", [1, 5, 30, -1])
def test_a_line_that_was_cut_is_ignored_and_the_next_one_is_whole(file, cut):
    decide(Review(file), 1, Verdict.REJECTED)
    path = Review(file).decisions_path
    whole = path.read_bytes()
    path.write_bytes(whole + whole.rstrip(b"\n").replace(b"films-1", "films-ä".encode())[:cut])
    review = Review(file)
    decide(review, 2, Verdict.REJECTED)
    assert Review(file).progress().rejected == 2


def test_two_reviews_of_a_file_see_each_other(file):
    one, other = Review(file), Review(file)
    decide(one, 1, Verdict.REJECTED)
    decide(other, 2, Verdict.REJECTED)
    assert one.progress() == other.progress()
    assert one.progress().rejected == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no questions"),
        ("Heat|directed by|Michael Mann\n", "films.jsonl"),
        ('{"answers": []}\n', '"id" and "text"'),
        ((json.dumps({"id": "1", "text": "?", "answers": [], "topic_entities": []}) + "\n") * 2, "same id"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_file_of_questions_is_refused(file, text, told):
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(DatasetError, match=told):
        Review(file)


@pytest.mark.parametrize("line", ["hello", "{}", '{"id": "films-1", "verdict": "maybe"}', "[]"])
def test_what_is_no_file_of_decisions_is_refused(file, line):
    file.with_name("films.jsonl.review.jsonl").write_text(line + "\n")
    with pytest.raises(DatasetError, match=r"review.jsonl:1 is no decision of a review: move the file away"):
        Review(file)


def test_a_decision_that_cannot_be_saved_is_not_made(file, monkeypatch):
    review = Review(file)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kbqa.datasets.reviews.append_line", full)
    with pytest.raises(ReviewFileError, match="No space left on device"):
        decide(review, 1, Verdict.REJECTED)
    assert review.progress().rejected == 0
