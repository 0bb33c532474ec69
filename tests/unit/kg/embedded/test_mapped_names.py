"""Names on disk are found as those in memory are."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from kbqa.kg.embedded.mapped_names import MappedNames
from kbqa.kg.embedded.oxigraph import INDEX, OxigraphStore, write_graph
from kbqa.kg.linking.names_by_word import fold
from kbqa.kg.linking.tokens import key_of
from kbqa.kg.loading.facts import Fact, named_quad
from kbqa.kg.sparql.pool import QueryPool

QUERIES = QueryPool(size=1)
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"

# Accents, other scripts, what becomes several words without them, one long name, and lone surrogates.
NAMES = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from(
            ["Ann", "ann", "Anna", "Brandt", "Brant", "Zoé", "Zoe", "e\u0301", "ﷺ", "½", "of", "1984"]
        ),
        min_size=1,
        max_size=4,
    ).map(" ".join),
    st.sampled_from([" ".join(["very"] * 63 + ["long"] * repeats) for repeats in (0, 1, 2, 9)]),
    st.just("\ud800 half"),
)


def opened(directory: Path, facts: list[Fact], *, named: bool) -> OxigraphStore:
    write_graph(directory, facts, named=named)
    return OxigraphStore(directory, version="v", named=named, queries=QUERIES)


def assert_same(store: OxigraphStore, questions: list[str]) -> None:
    on_disk, in_memory = store.linker(), store._linker_in_memory()
    for question in questions:
        for asked in (question, f"who is {question}?", f"Who knows “{question}” of Brant's?"):
            assert on_disk.link(asked) == in_memory.link(asked), asked
        assert on_disk.complete(question, 5) == in_memory.complete(question, 5), question


def encodable(text: str) -> bool:
    return text.isprintable() and not any("\ud800" <= character <= "\udfff" for character in text)


@settings(deadline=None, max_examples=25)
@given(st.lists(NAMES, min_size=1, max_size=12), st.lists(NAMES, max_size=4))
@example(["Zoé Brandt", "zoe brandt", "Zoé brandt", "Ann of Zoé"], ["zoe brant", "Zoee Brandt", "an"])
@example(["½ Ann", "Ann"], ["1⁄2 ann"])
def test_names_of_a_delimited_file(names, others):
    names = [name for name in names if name.strip() and encodable(name)]
    facts = [Fact(named_quad(name, "knows", names[0])) for name in names]
    with tempfile.TemporaryDirectory() as directory:
        store = opened(Path(directory), facts, named=True)
        assert_same(store, [*names, *others])


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 5), NAMES), max_size=12), st.lists(NAMES, max_size=4))
@example([(0, "Ann Brandt"), (0, "ann brandt"), (5, "Ann Brandt"), (4, "Brant")], ["Ann Brant", "brandt"])
def test_labels_and_texts_of_a_graph_in_rdf(labels, others):
    """Entity 5 is a class that is schema only; what is odd has a motto instead of a label."""
    iri = "http://x/"
    facts = [ox.Quad(ox.NamedNode(f"{iri}0"), ox.NamedNode(TYPE), ox.NamedNode(f"{iri}5"))]
    for number, name in labels:
        relation = ox.NamedNode(f"{iri}motto" if number % 2 and number < 5 else LABEL)
        name = name.encode("utf-8", "replace").decode()
        facts.append(ox.Quad(ox.NamedNode(f"{iri}{number}"), relation, ox.Literal(name)))
    with tempfile.TemporaryDirectory() as directory:
        store = opened(Path(directory), list(map(Fact, facts)), named=False)
        assert_same(store, [*(name for _, name in labels), *others, "http://x/3"])


def test_no_word_within_the_errors_is_left_out(tmp_path):
    """Words of few different characters, so that many are alike."""
    rng = random.Random(1)
    letters = "abé1_語"
    words = {"".join(rng.choices(letters, k=rng.randint(5, 8))).strip("_") for _ in range(400)}
    facts = [Fact(named_quad(word, "is", word)) for word in words]
    known = opened(tmp_path, facts, named=True).linker()._fuzzy_names()._names
    keys = (fold(key_of(word)).split(" ") for word in words)
    folded = {word for key in keys for word in key if word in known.names}
    assert len(folded) > 200
    for word in [*sorted(folded)[:40], "", "a", "zzzzz", "a" * 50]:
        for most in (0, 1, 2):
            near = {other for other in folded if OSA.distance(word, other) <= most}
            assert near <= set(known.words_like(word, most))


def test_a_graph_that_was_loaded_before_names_were_written_is_linked_in_memory(tmp_path):
    store = opened(tmp_path, [Fact(named_quad("Ann Brandt", "knows", "Zoé"))], named=True)
    assert not isinstance(store.linker()._entities, dict)
    for file in [*(tmp_path / INDEX).glob("entities.*"), tmp_path / INDEX / "first_tokens.npy"]:
        file.unlink()
    older = OxigraphStore(tmp_path, version="v", named=True, queries=QUERIES)
    assert older.link("who is Ann Brant?") == store.link("who is Ann Brant?") != []


@pytest.mark.parametrize("names", [[], ["Ann"]])
def test_a_graph_without_texts(tmp_path, names):
    store = opened(tmp_path, [Fact(named_quad(name, "is", name)) for name in names], named=True)
    assert MappedNames.exist(tmp_path / INDEX)
    assert [mention.id for mention in store.link("Who is Ann?")] == names
    assert [item.id for item in store.complete("an", limit=3)] == names
