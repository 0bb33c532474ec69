"""Messages as strings: JSON, compressed if it is long. Nothing is ever unpickled."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import TypeVar

from pydantic import ValidationError

from kbqa.errors import MessageError
from kbqa.wire.messages import WireMessage

MAX_MESSAGE_BYTES = 64 * 2**20
"""Maximum bytes of a message's JSON, before compression."""

_PLAIN_BYTES = 4096  # shorter messages stay readable
_ENCODED = 1.5  # characters of base64 for each byte at most, with those that compression may add

M = TypeVar("M", bound=WireMessage)


def encode(message: WireMessage) -> str:
    """JSON, or from 4 KiB on base64 of its zlib compression; floats survive exactly.

    Raises:
        MessageError: it is larger than `MAX_MESSAGE_BYTES`, or not expressible in UTF-8.
    """
    name = type(message).__name__
    try:
        data = message.model_dump_json().encode()
    except ValueError as error:  # half of a surrogate pair
        raise MessageError(f"{name}: {error}") from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise MessageError(f"{name}: {len(data)} bytes are more than {MAX_MESSAGE_BYTES}")
    if len(data) < _PLAIN_BYTES:
        return data.decode()
    return base64.b64encode(zlib.compress(data, level=1)).decode()


def decode(kind: type[M], text: object) -> M:
    """Decode a message of a kind.

    Raises:
        MessageError: it does not fit the schema; names the field.
    """
    if not isinstance(text, str):
        raise MessageError(f"{kind.__name__}: a string is needed, not {type(text).__name__}")
    if len(text) > _ENCODED * MAX_MESSAGE_BYTES:
        raise MessageError(f"{kind.__name__}: larger than {MAX_MESSAGE_BYTES} bytes")
    data = text if text.startswith("{") else _inflate(kind.__name__, text)
    if len(data) > MAX_MESSAGE_BYTES:
        raise MessageError(f"{kind.__name__}: larger than {MAX_MESSAGE_BYTES} bytes")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, f['loc'])) or 'message'}: {f['msg']}" for f in error.errors()[:5])
        raise MessageError(f"{kind.__name__}: {'; '.join(faults)}") from None


def _inflate(name: str, text: str) -> bytes:
    try:
        unpacking = zlib.decompressobj()
        # One byte more than is allowed tells a message of maximum size from a zip bomb.
        data = unpacking.decompress(base64.b64decode(text, validate=True), MAX_MESSAGE_BYTES + 1)
        if not unpacking.eof and len(data) <= MAX_MESSAGE_BYTES:
            raise MessageError(f"{name}: cut off after {len(data)} bytes")
    except (ValueError, binascii.Error, zlib.error) as error:
        raise MessageError(f"{name}: neither JSON nor compressed JSON ({error})") from error
    return data
