"""What is listed of a large graph's schema, and what happens when nothing can be."""

from __future__ import annotations

import pytest

from kbqa.errors import QueryTimeoutError
from kbqa.kg.actions import Item
from kbqa.kg.endpoint.record import Endpoint
from kbqa.kg.endpoint.schema import LARGE, RELATIONS, TYPES, SchemaListing
from kbqa.kg.endpoint.store import EndpointStore
from tests.iri_graphs import FREEBASE, WIKIDATA
from tests.sparql_servers import SparqlServer

NS = "http://rdf.freebase.com/ns/"


@pytest.fixture
def connect():
    opened = []

    def connect(turtle: str, *, triples: int | None) -> EndpointStore:
        server = SparqlServer(turtle)
        store = EndpointStore(Endpoint(server.url, deadline_s=60), version="v", triples=triples)
        opened.extend((store.close, server.stop))
        return store

    yield connect
    for close in opened:
        close()


def ids(items) -> set[str]:
    return {item.id.removeprefix(NS) for item in items}


def test_of_a_small_graph_what_it_uses_is_listed(connect):
    store = connect(FREEBASE, triples=60)
    assert {"people.person", "film.actor", "location.location"} < ids(store.types())
    assert "tv.regular_tv_appearance.actor" in ids(store.relations())


@pytest.mark.parametrize("triples", [None, LARGE + 1])
def test_of_a_large_graph_what_it_declares_is_listed(connect, triples):
    assert ids(connect(FREEBASE, triples=triples).types()) == {"people.person", "film.film"}
    wikidata = connect(WIKIDATA, triples=triples)
    assert ids(wikidata.relations()) == {"http://www.wikidata.org/prop/direct/P40"}


def test_a_large_graph_without_declarations_is_listed_by_use(connect):
    store = connect("<http://e.org/a> a <http://e.org/C> .", triples=None)
    assert ids(store.types()) == {"http://e.org/C"}
    assert ids(store.relations()) == {"http://www.w3.org/1999/02/22-rdf-syntax-ns#type"}


def listed(every, what=TYPES, triples=None):
    return SchemaListing(triples).get(what, every, lambda ids: [Item(id_, id_) for id_ in ids])


def test_declarations_stand_in_where_use_cannot_be_listed():
    def every(pattern):
        if "?kind" not in pattern:
            raise QueryTimeoutError("too slow")
        return ["b", "a"]

    assert listed(every, triples=10) == [Item("a", "a"), Item("b", "b")]
    assert listed(every) == [Item("a", "a"), Item("b", "b")]


@pytest.mark.parametrize("what", [RELATIONS, TYPES])
def test_of_a_large_graph_that_declares_nothing_what_some_facts_use_is_listed(what):
    def every(pattern):
        if "?kind" in pattern:
            return []
        if "LIMIT" not in pattern:
            raise QueryTimeoutError("too slow")
        return ["human"]

    assert listed(every, what) == [Item("human", "human")]


def test_some_facts_are_asked_about_in_sparql_that_servers_take(connect):
    store = connect(WIKIDATA, triples=None)
    every = store._every_id

    def impatient(pattern):
        if "LIMIT" not in pattern:
            raise QueryTimeoutError("too slow")
        return every(pattern)

    listing = SchemaListing(None)
    types = listing.get(TYPES, impatient, store._known)
    assert types
    assert ids(types) == ids(store.types())


def test_a_listing_that_failed_is_not_tried_again_at_once():
    asked = []

    def every(pattern):
        asked.append(pattern)
        raise QueryTimeoutError("too slow")

    listing = SchemaListing(None)
    for _ in range(3):
        with pytest.raises(QueryTimeoutError):
            listing.get(RELATIONS, every, lambda ids: [])
    assert len(asked) == 3
