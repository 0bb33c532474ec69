"""API keys: who may ask, and under which name the limits count them.

The server needs a key's hash alone. A file of keys has a line each, a name and the
SHA-256 of the key in hexadecimal; empty lines and those that begin with # are skipped:

    trainer 5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from kbqa.errors import ConfigurationError

_MIN_CHARS = 16
_LINE = re.compile(r"(?P<name>[\w.@-]{1,64})\s+(?P<digest>[0-9a-fA-F]{64})")


class ApiKeys:
    """The keys that are accepted.

    Args:
        digests: (name, SHA-256 of the key) of each.
    """

    def __init__(self, digests: Iterable[tuple[str, bytes]]) -> None:
        self._digests = tuple(digests)

    @classmethod
    def load(cls, keys: str | None, file: Path | None) -> Self | None:
        """Those of a comma-separated list and of a file of hashes; None if neither is given.

        Raises:
            ConfigurationError: a key is too short to be a secret, or the file cannot be read.
        """
        digests: list[tuple[str, bytes]] = []
        if keys is not None:
            digests += map(_from_text, keys.split(","))
        if file is not None:
            digests += _from_file(file)
        if keys is None and file is None:
            return None
        if not digests:
            raise ConfigurationError(
                f"KBQA_KG_SERVER_API_KEYS_FILE: {file} contains no keys, so nobody could ask"
            )
        return cls(digests)

    def name_of(self, presented: bytes) -> str | None:
        """The name of a key, or None if it is none; takes the same time for all that are none."""
        digest = hashlib.sha256(presented).digest()
        found = None
        for name, known in self._digests:
            if hmac.compare_digest(digest, known):
                found = name
        return found


def _from_text(key: str) -> tuple[str, bytes]:
    key = key.strip()
    if len(key) < _MIN_CHARS:
        raise ConfigurationError(
            f"KBQA_KG_SERVER_API_KEYS: a key of {len(key)} characters can be guessed: "
            f"use {_MIN_CHARS} or more, for instance from: openssl rand -hex 24"
        )
    digest = hashlib.sha256(key.encode()).digest()
    return f"key-{digest.hex()[:8]}", digest


def _from_file(path: Path) -> list[tuple[str, bytes]]:
    variable = "KBQA_KG_SERVER_API_KEYS_FILE"
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{variable}: {path} cannot be read: {error}") from error
    digests = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fields = _LINE.fullmatch(line.strip())
        if fields is None:
            raise ConfigurationError(
                f"{variable}: {path}:{number} is not a name and a SHA-256 in hexadecimal"
            )
        digests.append((fields["name"], bytes.fromhex(fields["digest"])))
    return digests
