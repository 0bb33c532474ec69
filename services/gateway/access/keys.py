"""API keys: what is kept of them, and whose a presented one is.

A key is `kbqa_<id>_<secret>` and shown once, when it is made. Its secret is 256 random bits, so
that a single SHA-256 is enough to keep it: slow hashes protect what people choose, of which there
is little to try; of these there are 2^256. Looking a digest up takes a time that depends on the
digest, which tells nobody anything of the key behind it.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from limits import parse_many
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, StringConstraints, ValidationError

from kbqa.errors import ConfigurationError
from kbqa.policy_store.durable import write_file
from services.gateway.access.errors import KeyExpiredError, KeyRequiredError, KeyRevokedError

logger = logging.getLogger(__name__)

EVERY_GRAPH = "*"
_SECRET_BYTES = 32
_LOOK_S = 0.5  # how often the file's state is asked for, at most


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
    """What is kept of a key.

    Attributes:
        digest: SHA-256 of the whole key, in hexadecimal.
        graphs: that it may ask about; "*" is every one.
        rate: requests that it may send; the gateway's setting if unset.
        quota: questions that it may ask; likewise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    graphs: tuple[str, ...] = (EVERY_GRAPH,)
    rate: LimitText | None = None
    quota: LimitText | None = None
    created: AwareDatetime
    expires: AwareDatetime | None = None
    revoked: AwareDatetime | None = None

    def state(self, now: datetime) -> str:
        """`revoked`, `expired` or `valid`."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "valid"


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: list[KeyRecord]


class KeyFile:
    """All keys of a gateway, in a JSON file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[KeyRecord]:
        """All that were ever made; none if there is no file.

        Raises:
            ConfigurationError: it cannot be read, or is not a key file.
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
        rate: str | None = None,
        quota: str | None = None,
        expires: datetime | None = None,
    ) -> tuple[KeyRecord, str]:
        """Make a key; returns what is kept of it, and the key itself, which is not.

        Raises:
            ConfigurationError: a value is wrong, or a valid key has the name already.
        """
        id_ = secrets.token_hex(4)
        key = f"kbqa_{id_}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        now = datetime.now(UTC)
        try:
            record = KeyRecord(
                id=id_, name=name, digest=_digest(key.encode()), graphs=graphs, rate=rate, quota=quota,
                created=now, expires=expires,
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
        """Take a key back, for ever; running gateways notice within a second.

        Raises:
            ConfigurationError: there is no such key, or it was revoked before.
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
        """The records, to be changed by one process at a time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            records = self.read()
            yield records
            write_file(self.path, _Content(keys=records).model_dump_json(indent=1).encode())


class Keys:
    """The keys of a file as a running gateway knows them: changes count within a second.

    A file that has become unreadable changes nothing: those who were let in are, and no others.

    Raises:
        ConfigurationError: the file cannot be read at first.
    """

    def __init__(self, file: KeyFile, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._state = self._file_state()
        self._by_digest = {record.digest: record for record in file.read()}
        self._looked_at = clock()

    def find(self, presented: bytes) -> KeyRecord:
        """Whose key this is.

        Raises:
            KeyRequiredError, KeyExpiredError, KeyRevokedError: it opens nothing.
        """
        self._follow()
        record = self._by_digest.get(_digest(presented))
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
            self._by_digest = {record.digest: record for record in self._file.read()}
        except ConfigurationError as error:
            logger.error("keys cannot be reloaded", extra={"error": str(error)})
            return
        self._state = state

    def _file_state(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._file.path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()
