"""How the one-hop index is sorted; what it holds is tested where it is read."""

from __future__ import annotations

import numpy as np
import pytest

from kbqa.kg.embedded.indexing import distinct_rows


@pytest.mark.parametrize("sizes", [(7, 3, 7), (2**20, 2**11, 2**32), (2**31, 5, 2**32)])
def test_rows_are_sorted_whether_or_not_one_fits_into_a_number(sizes):
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, size, 100, dtype=np.uint32) for size in sizes]
    columns = [
        np.concatenate([column, [0, size - 1], column]).astype(np.uint32)
        for column, size in zip(columns, sizes, strict=True)
    ]
    rows = zip(*(column.tolist() for column in distinct_rows(*columns, sizes=sizes)), strict=True)
    assert list(rows) == sorted(set(zip(*(column.tolist() for column in columns), strict=True)))
