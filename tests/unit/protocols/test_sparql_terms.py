"""Entities as the terms of queries, and back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbqa.kg.actions import Action, Success
from kbqa.kg.namespaces import canonical_id
from kbqa.protocols.sparql_terms import Topics, entity_id, entity_term


@given(st.text(min_size=1))
@example("m.0abc")
@example("Q42")
@example("L7-S1")
@example("http://example.org/a")
@example("ns:m.0abc")
@example("Tom Hanks")
@example('"1999"')
def test_a_term_is_read_back_as_its_id(id_):
    assert entity_id(entity_term(id_)) == canonical_id(id_)


@pytest.mark.parametrize("term", ["m.0abc", "Tom Hanks", "Paris, Texas", ""])
def test_what_is_no_term_stays_as_it_is(term):
    assert entity_id(term) == term


@pytest.mark.parametrize(
    ("term", "id_"),
    [
        ("ns:film.actor", "film.actor"),
        ("<http://www.wikidata.org/entity/Q42>", "Q42"),
        ("http://rdf.freebase.com/ns/m.0abc", "m.0abc"),
        ("dbr:Berlin", "dbr:Berlin"),
    ],
)
def test_a_term_of_a_well_known_graph_has_a_short_id(term, id_):
    assert entity_id(term) == id_


@pytest.mark.parametrize(
    ("ids", "terms"),
    [
        (["m.07g8r3", "Q42"], "ns:m.07g8r3 wd:Q42"),
        (["dbr:Berlin", "http://ex.org/a"], "dbr:Berlin <http://ex.org/a>"),
    ],
)
def test_topics_are_looked_up_in_one_query(ids, terms):
    [look] = Topics(ids).look()
    query = f"SELECT ?topic WHERE {{ VALUES ?topic {{ {terms} }} }}"
    assert look == Action("execute_sparql", {"query": query, "limit": 2})


def test_topics_are_shown_with_their_labels():
    topics = Topics(["m.07g8r3", "Q42", "Tom Hanks"])
    topics.look()
    row = {
        "type": "uri",
        "value": "http://rdf.freebase.com/ns/m.07g8r3",
        "id": "m.07g8r3",
        "label": "London Tipton",
    }
    nameless = {"type": "uri", "value": "http://www.wikidata.org/entity/Q42", "id": "Q42", "label": "Q42"}
    assert topics.take([Success(({"topic": row}, {"topic": nameless}), 2)])
    assert topics.text(gap="", bare=True).startswith("London Tipton(m.07g8r3), Q42(wd:Q42), Tom Hanks(<urn:")
    assert topics.text().startswith("London Tipton (ns:m.07g8r3), Q42 (wd:Q42)")
    assert not topics.take([Success((), 0)])


def test_names_need_no_look():
    assert Topics(["Tom Hanks", '"1999"']).look() == ()
