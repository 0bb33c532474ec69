"""Who asked what when: a line of JSON for each request, without questions unless they are wanted."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from kbqa.errors import ConfigurationError

logger = logging.getLogger(__name__)

_KEPT = 2  # full files beside the one that is written


@dataclass(slots=True)
class AuditEntry:
    """What is written of a request.

    Attributes:
        key, key_name: of whoever asked; None without a key.
        address: where the request came from.
        route: template of its path; None if there is none such.
        status: of the answer; 0 if the client left before there was one.
        complete: whether all of the answer was sent.
        graph: that was asked about.
        answer: id of the answer that was given or read.
        question: its text, where that is wanted.
        refusal: why it was not let in.
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
    """Writes entries to a file that is kept small, or into the service's log.

    Args:
        path: of the file; one gateway writes it. None is the log.
        questions: whether to write questions.
        max_bytes: size of the file.

    Raises:
        ConfigurationError: it cannot be written.
    """

    def __init__(self, path: Path | None, *, questions: bool, max_bytes: int) -> None:
        self.questions = questions
        self._file: RotatingFileHandler | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = RotatingFileHandler(
                    path, maxBytes=max_bytes, backupCount=_KEPT, encoding="utf-8"
                )
            except OSError as error:
                raise ConfigurationError(
                    f"KBQA_GATEWAY_AUDIT_LOG: {path} cannot be written: {error}"
                ) from error

    def write(self, entry: AuditEntry) -> None:
        fields = {name: value for name, value in asdict(entry).items() if value is not None}
        if not self.questions:
            fields.pop("question", None)
        if self._file is None:
            logger.info("audit", extra=fields)
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, **fields}, ensure_ascii=False)
        self._file.emit(logging.LogRecord(__name__, logging.INFO, "", 0, line, None, None))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
