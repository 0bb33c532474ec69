"""Values of typed literals, and of texts that are written like values."""

from __future__ import annotations

import pytest

from kbqa.kg.values import value_of, written_as, written_value

XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("ids", "datatype"),
    [
        (['"170"', '"-3.5"', "99"], "decimal"),
        (['"1995-12-15"', "2001-12-25"], "date"),
        (["1995", "1995-12-15"], None),
        (["1995-13-15"], None),
        (["170", "Heat"], None),
        (["170", ""], None),
        ([f'"170"^^<{XSD}integer>'], None),
        (['"170"@en'], None),
        (['"170'], None),
        (["1e3"], None),
        (["1,000"], None),
        ([], None),
    ],
)
def test_texts_are_read_as_what_all_of_them_are_written_like(ids, datatype):
    assert written_as(ids) == (datatype and XSD + datatype)
    if datatype is not None:
        values = [written_value(id_, XSD + datatype) for id_ in ids]
        assert values == [value_of(f'"{id_.strip(chr(34))}"^^<{XSD}{datatype}>') for id_ in ids]
