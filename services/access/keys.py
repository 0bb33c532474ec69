"""API keys: the file that stores them, and the look-up of a presented key.

A key is `kbqa_<id>_<secret>` and is shown once, when it is created; only its SHA-256 is stored. A fast hash
is enough, because the secret is 256 random bits; slow hashes are for passwords that people choose. The time
of a look-up depends on the digest, which reveals nothing about the key.

    file = KeyFile(home / "gateway" / "keys.json")
    record, key = file.create("reports", graphs=("films",), rate="60/minute", quota="1000/day")
    Keys(file).find(key.encode()) == record
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from limits import parse_many
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from kbqa.errors import ConfigurationError
from kbqa.policy_store.durable import write_file
from services.access.errors import KeyExpiredError, KeyRequiredError, KeyRevokedError

logger = logging.getLogger(__name__)

EVERY_GRAPH = "*"
_SECRET_BYTES = 32
_LOOK_S = 0.5  # shortest time between two checks of the file
_MIN_CHARS = 16  # minimum length of a key that an operator chose


def _limit(text: str) -> str:
    try:
        parse_many(text)
    except ValueError as error:
        raise ValueError(
            f'"{text}" is not a limit: write 60/minute, 1000/day, or both as 5/second;1000/day'
        ) from error
    return text


LimitText = Annotated[str, AfterValidator(_limit)]
"""One or more limits: 60/minute, 5/second;1000/day."""


class KeyRecord(BaseModel):
    """The stored data of a key.

    Attributes:
        digest: SHA-256 of the whole key, in hexadecimal.
        graphs: graphs that it may ask about; "*" stands for all.
        changes: whether it may change these graphs at kg_server.
        rate: rate limit of its requests (default: the service's setting).
        quota: limit of the gateway's questions (default: the gateway's setting).
        min_confidence: confidence below which the gateway withholds answers (default: its setting).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    graphs: tuple[str, ...] = (EVERY_GRAPH,)
    changes: bool = False
    rate: LimitText | None = None
    quota: LimitText | None = None
    min_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    created: AwareDatetime
    expires: AwareDatetime | None = None
    revoked: AwareDatetime | None = None

    @property
    def is_for_all(self) -> bool:
        """Whether it may ask about every graph."""
        return EVERY_GRAPH in self.graphs

    def state(self, now: datetime) -> str:
        """`revoked`, `expired` or `valid`."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "valid"


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: list[KeyRecord]


class KeyFile:
    """All keys of a service, in a JSON file that is always replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[KeyRecord]:
        """All keys that were ever created, oldest first; empty if there is no file.

        Raises:
            ConfigurationError: the file cannot be read, or is not a key file.
        """
        try:
            return _Content.model_validate_json(self.path.read_bytes()).keys
        except FileNotFoundError:
            return []
        except (OSError, ValidationError) as error:
            raise ConfigurationError(f"{self.path} is not a key file: {error}") from error

    def create(
        self,
        name: str,
        *,
        graphs: tuple[str, ...] = (EVERY_GRAPH,),
        changes: bool = False,
        rate: str | None = None,
        quota: str | None = None,
        min_confidence: float | None = None,
        expires: datetime | None = None,
    ) -> tuple[KeyRecord, str]:
        """Create a key; returns its record and the key itself, which is not stored.

        Raises:
            ConfigurationError: a value is invalid, or a valid key has the same name.
        """
        id_ = secrets.token_hex(4)
        key = f"kbqa_{id_}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        now = datetime.now(UTC)
        try:
            record = KeyRecord(
                id=id_, name=name, digest=_digest(key.encode()), graphs=graphs, changes=changes, rate=rate,
                quota=quota, min_confidence=min_confidence, created=now, expires=expires,
            )  # fmt: skip
        except ValidationError as error:
            problems = "; ".join(f"{e['loc'][0]}: {e['msg']}" for e in error.errors())
            raise ConfigurationError(problems) from error
        with self._changed() as records:
            if any(known.name == name and known.state(now) == "valid" for known in records):
                raise ConfigurationError(
                    f'a key named "{name}" already exists: revoke it, or choose another name'
                )
            records.append(record)
        return record, key

    def revoke(self, id_or_name: str) -> KeyRecord:
        """Revoke a key permanently; running services notice within a second.

        Raises:
            ConfigurationError: there is no such key, or it is revoked already.
        """
        now = datetime.now(UTC)
        with self._changed() as records:
            for place, record in enumerate(records):
                if id_or_name in (record.id, record.name) and record.revoked is None:
                    records[place] = record.model_copy(update={"revoked": now})
                    return records[place]
            raise ConfigurationError(f'there is no active key "{id_or_name}": kbqa keys list shows all keys')

    @contextmanager
    def _changed(self) -> Iterator[list[KeyRecord]]:
        """The records, locked against other processes; changes to the list are written back."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            records = self.read()
            yield records
            write_file(self.path, _Content(keys=records).model_dump_json(indent=1).encode())


class Keys:
    """The keys that a running service accepts. Changes of the file take effect within a second.

    If the file becomes unreadable, the keys read last stay valid.

    Args:
        given: keys from the service's settings, in addition to the file's.

    Raises:
        ConfigurationError: the file cannot be read at the start.
    """

    def __init__(
        self,
        file: KeyFile | None,
        given: Iterable[KeyRecord] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._given, self._clock = file, tuple(given), clock
        self._state = self._file_state()
        self._by_digest = self._read()
        self._looked_at = clock()

    def find(self, presented: bytes) -> KeyRecord:
        """The record of a presented key.

        Raises:
            KeyRequiredError, KeyExpiredError, KeyRevokedError: the key is unknown, expired or revoked.
        """
        self._follow()
        return self._valid(self._by_digest.get(_digest(presented)))

    def by_id(self, id_: str) -> KeyRecord:
        """The record of a key; raises as `find`."""
        self._follow()
        return self._valid(next((known for known in self._by_digest.values() if known.id == id_), None))

    def _valid(self, record: KeyRecord | None) -> KeyRecord:
        if record is None:
            raise KeyRequiredError
        match record.state(datetime.now(UTC)):
            case "revoked":
                raise KeyRevokedError(record.name)
            case "expired":
                assert record.expires is not None
                raise KeyExpiredError(record.name, record.expires)
        return record

    def _follow(self) -> None:
        if self._clock() - self._looked_at < _LOOK_S:
            return
        self._looked_at = self._clock()
        state = self._file_state()
        if state == self._state:
            return
        try:
            self._by_digest = self._read()
        except ConfigurationError as error:
            logger.error("keys cannot be reloaded", extra={"error": str(error)})
            return
        self._state = state

    def _read(self) -> dict[str, KeyRecord]:
        stored = self._file.read() if self._file is not None else []
        return {record.digest: record for record in (*stored, *self._given)}

    def _file_state(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            with self._file.path.open("rb") as file:  # `stat` may be a minute old on a network file system
                found = os.fstat(file.fileno())
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def given_keys(text: str, variable: str) -> list[KeyRecord]:
    """Records of the keys that a setting contains, separated by commas.

    Args:
        variable: name of the setting, for messages.

    Raises:
        ConfigurationError: a key is so short that it can be guessed.
    """
    records = []
    for key in map(str.strip, text.split(",")):
        if len(key) < _MIN_CHARS:
            raise ConfigurationError(
                f"{variable}: a key of {len(key)} characters can be guessed: "
                f"use {_MIN_CHARS} or more, for instance from: openssl rand -hex 24"
            )
        digest = _digest(key.encode())
        name = f"key-{digest[:8]}"
        records.append(KeyRecord(id=name, name=name, digest=digest, created=datetime.now(UTC)))
    return records


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()
