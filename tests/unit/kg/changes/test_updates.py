"""SPARQL updates become queries for what they delete and insert; everything else is refused by name."""

from __future__ import annotations

import pytest

from kbqa.errors import GraphChangeError
from kbqa.kg.changes.updates import Operation, read_update


def test_data_is_constructed_without_reading_the_graph():
    [operation] = read_update('PREFIX x: <http://x/> INSERT DATA { x:a x:b "}" . x:c x:d x:e }')
    assert operation == Operation(
        None, 'PREFIX x: <http://x/>\nCONSTRUCT { x:a x:b "}" . x:c x:d x:e } WHERE {}', False
    )


def test_delete_and_insert_share_a_pattern():
    [operation] = read_update("DELETE { ?s <a> ?o } INSERT { ?s <b> ?o } WHERE { ?s <a> ?o { ?o <c> ?x } }")
    assert operation.deleted == "CONSTRUCT { ?s <a> ?o } WHERE { ?s <a> ?o { ?o <c> ?x } }"
    assert operation.inserted == "CONSTRUCT { ?s <b> ?o } WHERE { ?s <a> ?o { ?o <c> ?x } }"
    assert operation.reads


def test_delete_where_deletes_what_its_pattern_finds():
    [operation] = read_update("delete where { ?s <a> ?o }")
    assert operation == Operation("CONSTRUCT { ?s <a> ?o } WHERE { ?s <a> ?o }", None, True)


def test_operations_share_prefixes_and_may_end_with_a_semicolon():
    first, second = read_update(
        "BASE <http://x/> DELETE DATA { <a> <b> <c> } ; INSERT DATA { <a> <b> <d> } ;"
    )
    assert first.deleted == "BASE <http://x/>\nCONSTRUCT { <a> <b> <c> } WHERE {}"
    assert second.inserted == "BASE <http://x/>\nCONSTRUCT { <a> <b> <d> } WHERE {}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no operation"),
        ("CLEAR ALL", "CLEAR is not allowed"),
        ("LOAD <http://x/file>", "LOAD is not allowed"),
        ("WITH <http://x/g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", "WITH is not allowed"),
        ("SELECT * { ?s ?p ?o }", "SELECT is not allowed"),
        ("INSERT DATA { _:b <a> <b> }", "1:15: a blank node"),
        ("INSERT { [] <a> ?s } WHERE { ?s <a> ?o }", "a blank node"),
        ("INSERT DATA { <a> <b> <c>", 'expected "}"'),
        ("INSERT { ?s <a> <b> } USING <g> WHERE { ?s <a> ?o }", "expected WHERE"),
        ("INSERT DATA { <a> <b> <c> } INSERT DATA { <a> <b> <d> }", 'expected ";"'),
        ("PREFIX x:", "ends too early"),
    ],
)
def test_anything_else_is_refused_with_its_place(text, told):
    with pytest.raises(GraphChangeError, match="update") as refused:
        read_update(text)
    assert told in str(refused.value)
