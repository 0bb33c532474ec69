"""What a person decides about made questions: which of them stay, and in which words.

    films.jsonl                  the questions, which a review never changes
    films.jsonl.review.jsonl     a decision per line, on disk before its sender is told so

The last decision about a question counts. It holds for this question as it was shown: decisions about
questions that the file no longer has, or has with other contents under their ids, are not applied.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from kbqa.datasets.records import as_record, read_questions
from kbqa.errors import DatasetError
from kbqa.kg.ranking.encoders import words
from kbqa.policy_store.durable import append_line
from kbqa.trajectory import Question

LONGEST_WORDING = 1_000  # characters
REVIEWED = "review"
"""Where the wording of a question comes from that a person has reworded."""

_BEGINNING = b'{"id":'  # of every decision, so also of one whose writer died while writing


class Verdict(StrEnum):
    """What becomes of a question; OPEN takes an earlier decision back."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    OPEN = "open"


class QuestionChangedError(DatasetError):
    """The file no longer has the question that a decision is about, or has another one under its id."""

    def __init__(self, id_: str, path: Path) -> None:
        super().__init__(f"{path} no longer has question {id_} as it was shown: load the page again")


class WordingError(DatasetError):
    """A wording cannot be that of a question."""


class ReviewFileError(DatasetError):
    """A decision cannot be saved."""


class Decision(BaseModel):
    """A line of the file of decisions.

    Attributes:
        id: of the question.
        digest: of the whole question (see `digest`).
        text: the question as it was shown.
        wording: words to use instead; None to leave them as they are.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    digest: str
    text: str
    verdict: Verdict
    wording: str | None = None
    time: AwareDatetime


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a review is.

    Attributes:
        questions: of the file.
        accepted, rejected: questions; those that were reworded are accepted, too.
        reworded: questions with other words.
        lapsed: decisions that are about no question of the file as it is.
    """

    questions: int
    accepted: int
    rejected: int
    reworded: int
    lapsed: int


class Review:
    """The questions of a file and the decisions about them; safe for threads and processes on one machine.

    Both files are read again for every call, so that what others change in them is seen.

    Raises:
        DatasetError: the file cannot be read, has no questions or two of one id; or the file of decisions is
            something else.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.decisions_path = path, path.with_name(f"{path.name}.review.jsonl")
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] = ()
        self._lapsed = 0
        self._questions: Mapping[str, Question] = {}
        self._digests: Mapping[str, str] = {}
        self._read()

    def sample(self, count: int, seed: int = 0) -> list[tuple[Question, Decision | None]]:
        """Up to `count` questions drawn at random with what was decided about each.

        A question's place depends on its id and the seed alone, so that a sample stays the same while others
        are removed from the file.
        """
        questions, decisions = self._read()

        def place(question: Question) -> bytes:
            return hashlib.sha256(f"{seed}/{question.id}".encode()).digest()

        return [(one, decisions.get(one.id)) for one in sorted(questions.values(), key=place)[:count]]

    def decide(self, id_: str, shown: str, verdict: Verdict, wording: str | None = None) -> Decision:
        """Save a decision; it is on disk when this returns.

        Args:
            shown: digest of the question that the decision is about.
            wording: words to use instead; spaces at its ends, and the question's own words, count as None.

        Raises:
            QuestionChangedError: the file no longer has that question.
            WordingError: the wording is empty, too long, has several lines or is that of another question.
            ReviewFileError: the decision cannot be written.
        """
        with self._lock:
            questions, decisions = self._read_files()
            question = questions.get(id_)
            if question is None or self._digests[id_] != shown:
                raise QuestionChangedError(id_, self.path)
            said = _checked(wording, question, questions.values(), decisions)
            now = datetime.now(UTC)
            decision = Decision(
                id=id_, digest=shown, text=question.text, verdict=verdict, wording=said, time=now
            )
            try:
                append_line(self.decisions_path, decision.model_dump_json(exclude_none=True).encode())
            except OSError as error:
                raise ReviewFileError(
                    f"{self.decisions_path} cannot be written ({error.strerror}), so the decision is not "
                    "saved: make room or allow writing, then decide again"
                ) from error
        return decision

    def progress(self) -> Progress:
        """How far the review is."""
        questions, decisions = self._read()
        verdicts = [decision.verdict for decision in decisions.values()]
        return Progress(
            questions=len(questions),
            accepted=verdicts.count(Verdict.ACCEPTED),
            rejected=verdicts.count(Verdict.REJECTED),
            reworded=sum(
                decision.wording is not None and decision.verdict is not Verdict.REJECTED
                for decision in decisions.values()
            ),
            lapsed=self._lapsed,
        )

    def kept(self) -> list[Question]:
        """The questions that were not rejected, in the file's order and in the words that were decided."""
        questions, decisions = self._read()
        kept = []
        for question in questions.values():
            decision = decisions.get(question.id)
            if decision is not None and decision.wording is not None:
                question = replace(question, text=decision.wording, wording=REVIEWED)
            if decision is None or decision.verdict is not Verdict.REJECTED:
                kept.append(question)
        return kept

    def _read(self) -> tuple[Mapping[str, Question], Mapping[str, Decision]]:
        with self._lock:
            return self._read_files()

    def _read_files(self) -> tuple[Mapping[str, Question], Mapping[str, Decision]]:
        """The questions and the decisions about them, by id."""
        self._read_questions()
        last = {decision.id: decision for decision in _decisions(self.decisions_path)}
        fitting = {id_: one for id_, one in last.items() if self._digests.get(id_) == one.digest}
        decided = {id_: one for id_, one in fitting.items() if one.verdict is not Verdict.OPEN}
        self._lapsed = len(last) - len(fitting)
        return self._questions, decided

    def _read_questions(self) -> None:
        try:
            found = self.path.stat()
        except OSError as error:
            raise DatasetError(f"{self.path} cannot be read: {error.strerror}") from error
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp == self._stamp:
            return
        questions = read_questions(self.path)
        by_id = {question.id: question for question in questions}
        if len(by_id) < len(questions):
            raise DatasetError(f"{self.path}: two questions have the same id")
        self._questions, self._stamp = by_id, stamp
        self._digests = {id_: digest(question) for id_, question in by_id.items()}


def digest(question: Question) -> str:
    """Identifies a question with all of its fields: 16 hexadecimal digits."""
    record = json.dumps(as_record(question), sort_keys=True)
    return hashlib.sha256(record.encode()).hexdigest()[:16]


def _words_of(question: Question, decisions: Mapping[str, Decision]) -> str:
    decision = decisions.get(question.id)
    return question.text if decision is None or decision.wording is None else decision.wording


def _checked(
    wording: str | None,
    question: Question,
    questions: Iterable[Question],
    decisions: Mapping[str, Decision],
) -> str | None:
    """A new wording without spaces at its ends; None if it is the question's own."""
    said = question.text if wording is None else wording.strip()
    if said == question.text:
        return None
    if not said or len(said) > LONGEST_WORDING or len(said.splitlines()) > 1:
        raise WordingError(f"write the question on one line of 1 to {LONGEST_WORDING} characters")
    same = words(said)
    for other in questions:
        if other.id != question.id and words(_words_of(other, decisions)) == same:
            raise WordingError(
                f"question {other.id} says the same: choose other words, or reject one of them"
            )
    return said


def _decisions(path: Path) -> Iterator[Decision]:
    """The decisions of a file in their order; those that were written in part are left out.

    Raises:
        DatasetError: the file cannot be read, or has other lines.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        written = line.strip(b"\0 \r")  # a file system may fill with zeros what it had no time to write
        try:
            yield Decision.model_validate_json(written)
        except ValidationError as error:
            is_cut = error.errors()[0]["type"] == "json_invalid"
            if is_cut and (_BEGINNING.startswith(written) or written.startswith(_BEGINNING)):
                continue
            raise DatasetError(
                f"{path}:{number} is no decision of a review: move the file away to begin a new one"
            ) from error
