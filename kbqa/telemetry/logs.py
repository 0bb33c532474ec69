"""Structured logs. Pass fields by `extra`; bind the fields of a whole task by `log_context`.

logger.info("graph loaded", extra={"graph": "metaqa", "triples": 133582})
"""

from __future__ import annotations

import contextvars
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

LogFormat = Literal["json", "text"]

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}
_context: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "log_context", default=MappingProxyType({})
)


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add `fields` to every record logged inside, by this thread or task."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def logged(field: str) -> object:
    """The value that `log_context` adds for a field here; None if there is none."""
    return _context.get().get(field)


class StructuredFormatter(logging.Formatter):
    """One record per line, as JSON or as `time level logger message key=value …`.

    Args:
        service: name of the process, in every record.
        style: "json" for machines, "text" for people.
    """

    def __init__(self, service: str, style: LogFormat) -> None:
        super().__init__()
        self._service, self._json = service, style == "json"

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
        fields = {**_context.get(), **extra}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if self._json:
            head = {
                "time": time,
                "level": record.levelname,
                "service": self._service,
                "logger": record.name,
                "message": record.getMessage(),
            }
            return json.dumps({**head, **fields, **head}, default=str, ensure_ascii=False)
        exception = fields.pop("exception", None)
        pairs = "".join(f" {key}={_logfmt(value)}" for key, value in fields.items())
        line = f"{time} {record.levelname:<7} {self._service} {record.getMessage()}{pairs}"
        return f"{line}\n{exception}" if exception else line


def _logfmt(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n\r\t') else text


def configure_logging(service: str, level: str = "INFO", style: LogFormat = "text") -> None:
    """Send every log record of this process to standard error, in one form.

    Args:
        service: name of the process, in every record.
        level: lowest level that is written: DEBUG, INFO, WARNING or ERROR.
        style: "json" or "text".
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(StructuredFormatter(service, style))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # At INFO, each of these logs redundant lines per request or start-up step.
    for chatty in ("httpx", "httpcore", "mcp", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
