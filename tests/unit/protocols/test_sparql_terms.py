"""Entities as the terms of queries, and back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbqa.protocols.sparql_terms import entity_id, entity_term


@given(st.text(min_size=1))
@example("m.0abc")
@example("Q42")
@example("http://example.org/a")
@example("ns:m.0abc")
@example("Tom Hanks")
@example('"1999"')
def test_a_term_is_read_back_as_its_id(id_):
    assert entity_id(entity_term(id_)) == id_


@pytest.mark.parametrize("term", ["m.0abc", "Tom Hanks", "ns:film.actor", ""])
def test_what_is_no_term_stays_as_it_is(term):
    assert entity_id(term) == term
