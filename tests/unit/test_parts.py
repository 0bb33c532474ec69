"""Parts that a recipe names."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from pydantic import ValidationError

from kbqa import parts
from kbqa.parts import Parts


@dataclass(frozen=True)
class Toy:
    size: int = 3
    name_of_it: str = "toy"


@pytest.fixture
def toys():
    toys = Parts("toys")
    toys.register("toy")(Toy)
    return toys


def test_a_part_is_built_with_its_options(toys):
    assert toys.build("toy", {"size": 4}) == Toy(4)
    assert toys.resolve("toy", {"size": 4}) == {"size": 4, "name_of_it": "toy"}


@pytest.mark.parametrize(
    ("name", "options", "key", "message"),
    [
        ("toy", {"siz": 4}, "siz", "unknown key (known: name, size, name_of_it)"),
        ("toy", {"size": "big"}, "size", "Input should be a valid integer"),
        ("boat", {}, "name", 'unknown name "boat" (known: toy)'),
    ],
)
def test_a_fault_names_its_key(toys, name, options, key, message):
    with pytest.raises(ValidationError) as raised:
        toys.resolve(name, options)
    [fault] = raised.value.errors()
    assert fault["loc"] == (key,)
    assert message in fault["msg"]


def test_a_part_of_another_distribution_is_found_by_its_entry_point(toys, monkeypatch):
    point = EntryPoint("thing", "tests.unit.test_parts:Toy", "kbqa.toys")
    monkeypatch.setattr(parts, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    assert toys.names() == ["thing", "toy"]
    assert isinstance(toys.build("thing", {}).size, int)
