"""The files of batches. Each batch is a directory:

    batch.json        its record; locked (flock) by the gateway that answers its lines
    questions.jsonl   as received
    answers.jsonl     one `BatchAnswer` per line, appended as they are ready
    cancelled         exists once it was cancelled

An answer counts as soon as its line is complete on the disk. Only the holder of the lock appends, and it
first removes a line that a killed gateway has left incomplete. Therefore each line has at most one answer,
whichever gateway is killed at which moment.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cachetools import LRUCache
from pydantic import AwareDatetime, BaseModel, ValidationError

from kbqa.client.batches import BatchAnswer, BatchState
from kbqa.policy_store.durable import (
    create_file,
    exists_now,
    new_directory,
    put_in_place,
    remove_directory,
    sweep,
)
from services.gateway.errors import (
    BatchDamagedError,
    BatchNotFoundError,
    BatchRefusedError,
    IdempotencyMismatchError,
    TooManyBatchesError,
)

logger = logging.getLogger(__name__)

_RECORD, _QUESTIONS, _ANSWERS, _CANCELLED = "batch.json", "questions.jsonl", "answers.jsonl", "cancelled"
_INDEXED = 256  # batches whose answers are remembered by their place in the file
_ID = re.compile(r"[0-9a-f]{32}")
_CHUNK = 2**16
_ORPHANED_S = 3600.0  # age at which the files of an upload that never ended are removed


def batches_path(home: Path) -> Path:
    """Directory of the batches; the gateways that share a home share it."""
    return home / "gateway" / "batches"


class BatchRecord(BaseModel):
    """What does not change about a batch.

    Attributes:
        owner: id of the key that sent it; empty without keys.
        counted_as: name under which its questions count towards the owner's quota.
        lines: number of its lines.
        digest: SHA-256 of the questions, in hexadecimal.
    """

    id: str
    owner: str
    counted_as: str
    created: AwareDatetime
    lines: int
    digest: str


class Batch:
    """One batch; safe for threads."""

    def __init__(self, directory: Path, record: BatchRecord) -> None:
        self.directory, self.record = directory, record
        self.answers = AnswersFile(directory / _ANSWERS)

    @property
    def exists(self) -> bool:
        """Whether it has not been deleted."""
        return exists_now(self.directory / _RECORD)

    @property
    def is_cancelled(self) -> bool:
        return exists_now(self.directory / _CANCELLED)

    def state(self) -> BatchState:
        """Where it stands, once `answers` has been read."""
        if self.answers.count >= self.record.lines:
            return "done"
        return "cancelled" if self.is_cancelled else "running"

    def cancel(self) -> None:
        """Mark it, for all gateways; answers that are on the disk stay."""
        create_file(self.directory / _CANCELLED, b"")

    def questions(self) -> Iterator[tuple[int, bytes]]:
        """Its lines that are not blank, with their numbers from 1."""
        with (self.directory / _QUESTIONS).open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether this process alone may answer its lines; False if another one does, or it was deleted."""
        try:
            file = (self.directory / _RECORD).open("r+b")
        except FileNotFoundError:
            yield False
            return
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                yield False
                return
            yield True

    def last_change(self) -> float:
        """Unix time of the last answer or, before there is one, of its creation."""
        try:
            return (self.directory / _ANSWERS).stat().st_mtime
        except FileNotFoundError:
            return self.record.created.timestamp()


class AnswersFile:
    """Answers in the order in which they were ready; safe for threads.

    Attributes:
        lines: numbers of the lines that have an answer or an error.
        errors: how many have an error.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ends = [0]  # byte offsets at which the first 0, 1, 2 … answers end
        self.lines: set[int] = set()
        self.errors = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return len(self._ends) - 1

    def read(self) -> None:
        """Take note of complete answers that were appended since, by this process or another one.

        Raises:
            BatchDamagedError: the file holds something else.
        """
        with self._lock:
            try:
                file = self._path.open("rb")
            except FileNotFoundError:
                return
            with file:
                file.seek(self._ends[-1])
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # its rest, which may be written by now, would look like a line
                    self._note(self._outcome(line), len(line))

    def mend(self) -> None:
        """Remove an incomplete answer at the end; only for the holder of the batch's lock."""
        self.read()
        with self._lock:
            if self._path.exists() and self._path.stat().st_size > self._ends[-1]:
                os.truncate(self._path, self._ends[-1])

    def append(self, answer: BatchAnswer) -> None:
        """Append an answer, which is on the disk when this returns; only for the holder of the lock.

        Raises:
            OSError: it cannot be written; the file is as before.
        """
        line = answer.model_dump_json(exclude_none=True).encode() + b"\n"
        with self._lock, self._path.open("ab") as file:
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self._path, self._ends[-1])
                raise
            self._note({"line": answer.line, "error": answer.error}, len(line))

    def after(self, number: int) -> Iterator[bytes]:
        """The text of all answers that have been read, without the first `number`."""
        start, end = self._ends[min(number, self.count)], self._ends[-1]
        if start == end:
            return
        with self._path.open("rb") as file:
            file.seek(start)
            while start < end and (chunk := file.read(min(_CHUNK, end - start))):
                start += len(chunk)
                yield chunk

    def _outcome(self, line: bytes) -> dict[str, object]:
        try:
            found = json.loads(line)
            int(found["line"])
        except (ValueError, KeyError, TypeError):
            raise BatchDamagedError(self._path.parent.name) from None
        return dict(found)

    def _note(self, answer: dict[str, object], size: int) -> None:
        self._ends.append(self._ends[-1] + size)
        self.lines.add(int(str(answer["line"])))
        self.errors += answer.get("error") is not None


class BatchFiles:
    """All batches under a directory that several gateways may share; safe for threads.

    Args:
        most_lines: of a batch.
        kept: batches of an owner; further ones are refused.
        ttl_s: seconds for which a batch is kept after its last answer.
    """

    def __init__(self, directory: Path, *, most_lines: int, kept: int, ttl_s: float) -> None:
        self._directory = directory
        self._most_lines, self._kept, self._ttl_s = most_lines, kept, ttl_s
        self._known: LRUCache[str, Batch] = LRUCache(_INDEXED)
        self._lock = threading.Lock()

    def create(self, owner: str, counted_as: str, questions: bytes, key: str | None = None) -> Batch:
        """Store a batch; it is on the disk when this returns.

        Args:
            key: an Idempotency-Key; the batch of an earlier call with the same key and questions is returned.

        Raises:
            BatchRefusedError: it has no line, or too many.
            TooManyBatchesError: the owner has as many batches as are kept.
            IdempotencyMismatchError: the key was used for other questions.
        """
        lines = sum(1 for line in questions.split(b"\n") if line.strip())
        if not 0 < lines <= self._most_lines:
            raise BatchRefusedError(
                f"a batch has between 1 and {self._most_lines} lines of JSON, not {lines}: "
                + ("send a question on each line" if not lines else "send several batches")
            )
        id_ = secrets.token_hex(16)
        if key is not None:
            id_ = hashlib.sha256(f"{owner}\n{key}".encode()).hexdigest()[:32]
        digest = hashlib.sha256(questions).hexdigest()
        if (known := self._find(id_)) is not None:
            return _same(known, digest)
        if len(self.of(owner)) >= self._kept:
            raise TooManyBatchesError(self._kept)
        record = BatchRecord(
            id=id_, owner=owner, counted_as=counted_as, created=datetime.now(UTC), lines=lines, digest=digest
        )
        with new_directory(self._directory) as aside:
            (aside / _QUESTIONS).write_bytes(questions)
            (aside / _RECORD).write_text(record.model_dump_json())
            try:
                put_in_place(aside, self._directory / id_)
            except OSError as error:  # a request with the same key was faster
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return _same(self.get(owner, id_), digest)
        return self.get(owner, id_)

    def get(self, owner: str, id_: str) -> Batch:
        """A batch of an owner.

        Raises:
            BatchNotFoundError: the owner has no such batch.
        """
        batch = self._find(id_)
        if batch is None or batch.record.owner != owner:
            raise BatchNotFoundError(id_)
        return batch

    def of(self, owner: str) -> list[Batch]:
        """The batches of an owner, oldest first."""
        return [batch for batch in self.all() if batch.record.owner == owner]

    def all(self) -> list[Batch]:
        """All batches, oldest first."""
        found = (self._find(path.parent.name) for path in self._directory.glob(f"*/{_RECORD}"))
        return sorted((batch for batch in found if batch is not None), key=lambda b: b.record.created)

    def up_to_date(self) -> list[Batch]:
        """All batches, whose answers have just been read; one with a damaged file is left out."""
        found = []
        for batch in self.all():
            try:
                batch.answers.read()
            except (OSError, BatchDamagedError) as error:
                logger.error("a batch cannot be read", extra={"error": str(error)})
            else:
                found.append(batch)
        return found

    def delete(self, batch: Batch) -> None:
        """Remove a batch with its answers."""
        with self._lock:
            self._known.pop(batch.record.id, None)
        remove_directory(batch.directory)

    def expire(self) -> None:
        """Remove batches whose time is over, and what uploads that never ended have left."""
        if not self._directory.exists():
            return
        sweep(self._directory, untouched_s=_ORPHANED_S)
        for batch in self.up_to_date():
            if batch.state() != "running" and batch.last_change() + self._ttl_s < time.time():
                self.delete(batch)

    def _find(self, id_: str) -> Batch | None:
        if _ID.fullmatch(id_) is None:
            return None
        directory = self._directory / id_
        try:
            record = BatchRecord.model_validate_json((directory / _RECORD).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return None
        with self._lock:
            known = self._known.get(id_)
            # A deleted batch may have been sent again under the same Idempotency-Key.
            if known is None or known.record != record:
                known = self._known[id_] = Batch(directory, record)
            return known


def _same(batch: Batch, digest: str) -> Batch:
    if batch.record.digest != digest:
        raise IdempotencyMismatchError
    return batch
