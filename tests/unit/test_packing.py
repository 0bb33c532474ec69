"""Floats packed into a string: exact, short, and refused if they are damaged."""

from __future__ import annotations

import json
import random
import struct

import pytest
from pydantic import TypeAdapter, ValidationError

from kbqa.packing import PackedFloats, pack, unpack

FLOATS = TypeAdapter(PackedFloats)


def singles(count):
    numbers = (-random.Random(count).expovariate(3.0) for _ in range(count))
    return struct.unpack(f"<{count}f", struct.pack(f"<{count}f", *numbers))


def test_a_worked_value():
    assert pack((0.5, -1.0)) == "f4:AAAAPwAAgL8="
    assert unpack("f4:AAAAPwAAgL8=") == (0.5, -1.0)


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ((), "f4"),
        (singles(1000), "f4"),
        ((0.0, 2.0**-149, 2.0**127), "f4"),  # the smallest of single precision, and one of the largest
        ((0.1,), "f8"),
        ((*singles(3), 1e-300), "f8"),
        ((1e300,), "f8"),
    ],
)
def test_every_number_arrives_exactly(numbers, kind):
    packed = pack(numbers)
    assert packed.startswith(f"{kind}:")
    assert unpack(packed) == numbers


def test_it_is_a_third_as_long_as_the_digits():
    numbers = singles(1000)
    assert len(pack(numbers)) * 3 < len(json.dumps(numbers))


def test_only_json_is_packed_and_a_list_is_read_too():
    assert FLOATS.dump_python((0.5,)) == (0.5,)
    assert json.loads(FLOATS.dump_json((0.5,))) == "f4:AAAAPw=="
    assert FLOATS.validate_json("[0.5, 1]") == (0.5, 1.0)
    assert FLOATS.validate_json('"f4:AAAAPw=="') == (0.5,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5", "begin with f4: or f8:, not '0.5'"),
        ("f4:!!!!", "not base64"),
        ("f4:AAA=", "2 bytes are no whole number of f4"),
    ],
)
def test_what_is_damaged_is_refused(text, message):
    with pytest.raises(ValidationError, match=message):
        FLOATS.validate_json(json.dumps(text))
