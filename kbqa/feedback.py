"""Users' feedback on answers, stored on disk so that it can become training data.

Each line of `HOME/gateway/feedback*.jsonl` is a self-contained `Feedback`, because the answer itself is
stored only for an hour by default. Feedback is on disk before its sender gets a response.

    for question in questions_of(read_feedback(*feedback_files(home)), kg="films"):
        print(question_record(question))
"""

from __future__ import annotations

import heapq
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from kbqa.client.models import AnswerRequest, AnswerResponse, FeedbackRequest, Verdict
from kbqa.errors import FeedbackFullError
from kbqa.policy_store.durable import append_line

logger = logging.getLogger(__name__)


class Feedback(BaseModel):
    """Feedback, with the question and the answer.

    Attributes:
        owner: id of the sender's key; empty without keys.
        answers: the gateway's answers.
        gold: the correct answers according to the feedback; None if it does not say.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    time: AwareDatetime
    owner: str
    answer_id: str
    verdict: Verdict
    comment: str | None = None
    question: str
    kg: str
    graph: str | None = None
    topic_entities: tuple[str, ...]
    policy_version: str
    status: str
    answers: tuple[str, ...]
    gold: tuple[str, ...] | None = None


def feedback_path(home: Path) -> Path:
    """Default file of the feedback."""
    return home / "gateway" / "feedback.jsonl"


def feedback_files(home: Path) -> list[Path]:
    """The feedback files of all gateways with this home."""
    return sorted(feedback_path(home).parent.glob("feedback*.jsonl"))


class FeedbackFile:
    """Appends feedback; safe for threads and processes on one machine.

    Args:
        max_bytes: maximum size; further feedback is rejected.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._lock = threading.Lock()

    def add(
        self, owner: str, said: FeedbackRequest, request: AnswerRequest, document: AnswerResponse
    ) -> Feedback:
        """Save feedback on an answer; it is on disk when this returns.

        Args:
            request: that was answered by `document`.

        Raises:
            FeedbackFullError: there is no room for it.
        """
        feedback = _feedback(owner, said, request, document)
        line = feedback.model_dump_json(exclude_none=True).encode()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            if not append_line(self._path, line, max_bytes=self._max_bytes):
                raise FeedbackFullError
        return feedback


def _log_damaged(path: Path, line: int) -> None:
    logger.warning("a line is not valid feedback", extra={"path": str(path), "line": line})


def read_feedback(*paths: Path, on_damaged: Callable[[Path, int], None] = _log_damaged) -> Iterator[Feedback]:
    """All feedback in order of arrival, without invalid lines.

    Args:
        on_damaged: told the file and the number of each invalid line; by default it logs them.
    """
    read = (_read(path, on_damaged) for path in paths)
    return heapq.merge(*read, key=lambda said: said.time)


def _read(path: Path, on_damaged: Callable[[Path, int], None]) -> Iterator[Feedback]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    yield Feedback.model_validate_json(line)
                except ValidationError:
                    on_damaged(path, number)


def questions_of(feedback: Iterable[Feedback], kg: str | None = None) -> list[dict[str, Any]]:
    """Records of questions in the format of `kbqa.datasets`; the last feedback on a question counts.

    Feedback that does not say which answers are correct produces no record.

    Args:
        kg: graph whose questions are wanted; None for all.
    """
    latest: dict[tuple[str, str, str | None], Feedback] = {}
    for said in feedback:
        if kg in (None, said.kg):
            latest[said.question, said.kg, said.graph] = said
    return [
        {
            "id": f"feedback-{said.id}",
            "text": said.question,
            "answers": list(said.gold),
            "topic_entities": list(said.topic_entities),
            "kg": said.kg,
            **({"graph": said.graph} if said.graph is not None else {}),
        }
        for said in latest.values()
        if said.gold
    ]


def _feedback(
    owner: str, said: FeedbackRequest, request: AnswerRequest, document: AnswerResponse
) -> Feedback:
    # The graph accepts ids, so an entity's id is a better gold answer than its label.
    answers = tuple(answer.id or answer.value for answer in document.answers)
    gold = said.answers
    if gold is None and said.verdict == "right" and answers:
        gold = answers
    return Feedback(
        id=uuid.uuid4().hex,
        time=datetime.now(UTC),
        owner=owner,
        answer_id=document.id,
        verdict=said.verdict,
        comment=said.comment,
        question=document.understood or document.question,
        kg=document.kg,
        graph=request.graph,
        topic_entities=tuple(document.linking.topic_entities) if document.linking is not None else (),
        policy_version=document.policy_version,
        status=document.status,
        answers=answers,
        gold=gold,
    )
