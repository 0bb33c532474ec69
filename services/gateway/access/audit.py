"""The audit log: one line of JSON per request; questions are included only if the settings ask for them."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from logging.handlers import RotatingFileHandler
from pathlib import Path

from kbqa.errors import ConfigurationError

logger = logging.getLogger(__name__)

_KEPT = 2  # rotated files in addition to the current one


@dataclass(slots=True)
class AuditEntry:
    """The audit log's record of a request.

    Attributes:
        key, key_name: id and name of the caller's key; None without a key.
        address: the client's address; for IPv6 its /64 network.
        route: template of the path; None if no route matches.
        status: HTTP status of the response; 0 if the client disconnected before there was one.
        complete: whether the whole response was sent.
        graph: the graph that was asked about.
        answer: id of the answer that was given or read.
        question: the question's text; written only if the settings ask for it.
        refusal: kind of the error with which access was refused.
        elapsed_ms: time until the response was complete, in milliseconds.
    """

    request_id: str
    method: str
    address: str
    key: str | None = None
    key_name: str | None = None
    route: str | None = None
    status: int = 0
    complete: bool = False
    graph: str | None = None
    answer: str | None = None
    question: str | None = None
    refusal: str | None = None
    elapsed_ms: float = 0.0


class AuditLog:
    """Writes entries to a rotated file, or to the service's log.

    Args:
        path: the file, which only one gateway may write; None for the service's log. Requests without a valid
            key go to a second file (`audit.strangers.jsonl` beside `audit.jsonl`), so that strangers cannot
            rotate the callers' entries away.
        questions: whether to write questions.
        max_bytes: size at which the file is rotated.

    Raises:
        ConfigurationError: the file cannot be written.
    """

    def __init__(self, path: Path | None, *, questions: bool, max_bytes: int) -> None:
        self.questions = questions
        self._files: tuple[RotatingFileHandler, RotatingFileHandler] | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files = _rotated(path, max_bytes), _rotated(strangers_path(path), max_bytes)
            except OSError as error:
                raise ConfigurationError(
                    f"KBQA_GATEWAY_AUDIT_LOG: {path} cannot be written: {error}"
                ) from error

    def write(self, entry: AuditEntry) -> None:
        fields = {name: value for name, value in asdict(entry).items() if value is not None}
        if not self.questions:
            fields.pop("question", None)
        if self._files is None:
            logger.info("audit", extra=fields)
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, **fields}, ensure_ascii=False)
        callers, strangers = self._files
        file = strangers if entry.status == HTTPStatus.UNAUTHORIZED else callers
        file.emit(logging.LogRecord(__name__, logging.INFO, "", 0, line, None, None))

    def close(self) -> None:
        for file in self._files or ():
            file.close()


def strangers_path(path: Path) -> Path:
    """File of the requests without a valid key."""
    return path.with_name(f"{path.stem}.strangers{path.suffix}")


def _rotated(path: Path, max_bytes: int) -> RotatingFileHandler:
    return RotatingFileHandler(path, maxBytes=max_bytes, backupCount=_KEPT, encoding="utf-8")
