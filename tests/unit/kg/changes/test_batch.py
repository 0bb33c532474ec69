"""Batches are read line by line, and applied to a graph and its earlier changes."""

from __future__ import annotations

import random

import pytest

from kbqa.errors import ChangeTooLargeError, GraphChangeError
from kbqa.kg.changes.batch import MAX_TRIPLES, Batch, applied, limited, read_triples
from kbqa.kg.embedded.overlay import Difference
from kbqa.kg.embedded.oxigraph import OxigraphStore

A, B, C = "http://x/a", "http://x/b", "http://x/c"


def test_triples_are_read_by_the_ids_of_the_graph():
    number = "<http://www.w3.org/2001/XMLSchema#integer>"
    text = f'\n# a comment\n<{A}> <{B}> "a\\nb"@en .\n<{A}> <{B}> "01"^^{number} .\n'
    assert list(read_triples(text, "insert", named=False)) == [
        (A, B, '"a\\nb"@en'),
        (A, B, f'"1"^^{number}'),  # as the store writes it
    ]


def test_a_graph_of_names_takes_names_and_their_iris():
    text = "Tom Hanks\tborn in\tConcord\n<urn:kbqa:e:Tom%20Hanks> <urn:kbqa:r:age> <urn:kbqa:e:68> .\n"
    assert list(read_triples(text, "insert", named=True)) == [
        ("Tom Hanks", "born in", "Concord"),
        ("Tom Hanks", "age", "68"),
    ]


@pytest.mark.parametrize(
    ("line", "named", "told"),
    [
        ("nonsense", False, "delete, line 2"),
        (f"<{A}> <{B}> .", False, "delete, line 2"),
        (f"_:x <{B}> <{C}> .", False, "a blank node has no name"),
        (f"<{A}> <{B}> <{C}> .", True, "is not a name"),
        ('<urn:kbqa:e:a> <urn:kbqa:r:b> "text" .', True, "is not a name"),
        ("a\tb", True, "expected subject, relation and object"),
        ("a\t \tb", True, "expected subject, relation and object"),
    ],
)
def test_a_bad_line_is_named_with_the_reason(line, named, told):
    good = "a\tb\tc" if named else f"<{A}> <{B}> <{C}> ."
    with pytest.raises(GraphChangeError, match="line 2") as refused:
        list(read_triples(f"{good}\n{line}\n", "delete", named=named))
    assert told in str(refused.value)


def test_a_batch_is_bounded():
    many = ((f"e{number}", "r", "o") for number in range(MAX_TRIPLES + 1))
    with pytest.raises(ChangeTooLargeError, match="kbqa kg update"):
        limited(many)


def test_differences_add_up_to_the_graph_whatever_is_inserted_and_deleted():
    rng = random.Random(1)
    everything = [(f"e{n % 7}", f"r{n % 3}", f"e{n % 5}") for n in range(60)]
    loaded = set(everything[::2])
    base = OxigraphStore.from_triples(loaded)
    graph, difference = set(loaded), Difference()
    for _ in range(50):
        batch = Batch(*(frozenset(rng.sample(everything, 4)) for _ in range(2)))
        expected = graph - batch.deleted | batch.inserted
        done = applied(batch, base, difference)
        difference = done.difference
        assert loaded - difference.deleted | difference.inserted == expected
        assert difference.deleted <= loaded
        assert loaded.isdisjoint(difference.inserted)
        assert (done.inserted, done.deleted) == (len(expected - graph), len(graph - expected))
        assert done.inserted + done.deleted + done.ignored == len(batch)
        graph = expected
