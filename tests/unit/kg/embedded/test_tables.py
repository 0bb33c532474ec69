"""Numbers and strings come back from their files as they were written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.kg.embedded.tables import StringTable, map_numbers, starts_of, write_numbers

# Lone surrogates too: a name may come from anywhere.
STRINGS = st.one_of(st.text(max_size=6), st.sampled_from(["", "a", "é", "e\u0301", "\ud800", "\0"]))


@settings(deadline=None, max_examples=100)
@given(st.lists(STRINGS, max_size=30), st.lists(STRINGS, max_size=5))
def test_strings_are_found_by_number_and_numbers_by_string(strings, others):
    with tempfile.TemporaryDirectory() as directory:
        StringTable.write(Path(directory), "t", strings)
        table = StringTable(Path(directory), "t")
    assert [table[number] for number in range(len(table))] == strings
    for string in (*strings, *others):
        assert table.find(string) == [number for number, other in enumerate(strings) if other == string]


def test_a_table_of_many_strings_finds_every_one(tmp_path):
    strings = [f"entity {number}" for number in range(200_000)]
    StringTable.write(tmp_path, "t", strings)
    table = StringTable(tmp_path, "t")
    assert all(table.find(string) == [number] for number, string in enumerate(strings))
    assert table.find("entity") == table.find("entity 200000") == []


@pytest.mark.parametrize(
    ("numbers", "size"), [([], 4), ([0, 2**32 - 1], 4), ([0, 2**32], 8), ([2**63], 8), (range(1000), 4)]
)
def test_numbers_take_four_bytes_where_those_are_enough(tmp_path, numbers, size):
    write_numbers(tmp_path / "n.npy", np.array(numbers, np.uint64))
    mapped = map_numbers(tmp_path / "n.npy")
    assert mapped.tolist() == list(numbers)
    assert mapped.itemsize == size


@given(st.lists(st.integers(0, 9)))
def test_starts_say_where_each_key_begins(keys):
    keys.sort()
    starts = starts_of(np.array(keys, np.uint32), 10).tolist()
    assert [keys[start:end] for start, end in zip(starts, starts[1:], strict=False)] == [
        [key] * keys.count(key) for key in range(10)
    ]
