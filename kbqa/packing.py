"""Many floats as one string in JSON, which is shorter than their digits and read faster.

A model computes log-probabilities in single precision. Such a number has up to twenty digits in decimal and
six characters here. The string is a numpy type and base64 of the numbers, little-endian: `f4:zczMPQ==`.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_LETTERS = {"f4": "f", "f8": "d"}  # of the module struct


def pack(numbers: tuple[float, ...]) -> str:
    """In single precision if that changes none of the numbers, otherwise in double precision."""
    kind = "f4" if _are_single(numbers) else "f8"
    data = struct.pack(f"<{len(numbers)}{_LETTERS[kind]}", *numbers)
    return f"{kind}:{base64.b64encode(data).decode()}"


def unpack(text: str) -> tuple[float, ...]:
    """The numbers of a packed string.

    Raises:
        ValueError: it is not one.
    """
    kind, _, encoded = text.partition(":")
    if kind not in _LETTERS:
        raise ValueError(f"packed numbers begin with f4: or f8:, not {text[:3]!r}")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64 ({error})") from None
    count, rest = divmod(len(data), struct.calcsize(_LETTERS[kind]))
    if rest:
        raise ValueError(f"{len(data)} bytes are no whole number of {kind}")
    return struct.unpack(f"<{count}{_LETTERS[kind]}", data)


def _are_single(numbers: tuple[float, ...]) -> bool:
    form = f"<{len(numbers)}f"
    try:
        return struct.unpack(form, struct.pack(form, *numbers)) == numbers
    except OverflowError:
        return False


def _unpacked(value: object) -> object:
    if isinstance(value, str):
        return unpack(value)
    return tuple(value) if isinstance(value, list) else value


PackedFloats = Annotated[
    tuple[float, ...],
    BeforeValidator(_unpacked),
    PlainSerializer(pack, return_type=str, when_used="json"),
]
"""A tuple of floats, packed in JSON; a list of numbers is read, too."""
