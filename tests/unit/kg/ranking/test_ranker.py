"""Ranking, beside a naive one; what is kept, and what becomes of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.errors import EncoderUnavailableError
from kbqa.kg.actions import Item, ScoredItem
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.loading.files import GraphSource
from kbqa.kg.ranking.encoders import NgramEncoder
from kbqa.kg.ranking.ranker import Ranker, Schemas

FREEBASE, WIKIDATA = "http://rdf.freebase.com/ns/", "http://www.wikidata.org/prop/direct/"
NAMES = ("people.person.place_of_birth", "people.person.children", "film.film.directed_by", "film.film.genre")


def named(*names: str) -> list[Item]:
    return [Item(name, name) for name in names]


class CountingEncoder(NgramEncoder):
    """Remembers what it was asked to encode."""

    def __init__(self):
        super().__init__()
        self.encoded: list[str] = []
        self.down = False

    def encode(self, texts):
        if self.down:
            raise EncoderUnavailableError("down")
        self.encoded += texts
        return super().encode(texts)


@pytest.fixture
def encoder():
    return CountingEncoder()


@pytest.fixture
def ranker(encoder):
    return Ranker(encoder, lambda: named(*NAMES))


@pytest.mark.parametrize(
    ("query", "item"),
    [
        ("people.person.children", Item("people.person.children", "people.person.children")),
        ("People Person Children", Item("people.person.children", "people.person.children")),
        ("people/person/children", Item("people.person.children", "people.person.children")),
        ("ns:people.person.children", Item(FREEBASE + "people.person.children", "Children")),
        ("people.person.children", Item(FREEBASE + "people.person.children", "Children")),
        ("children", Item(FREEBASE + "people.person.children", "Children")),
        ("PLACE-OF-BIRTH", Item(WIKIDATA + "P19", "place of birth")),
        ("placeOfBirth", Item(WIKIDATA + "P19", "place of birth")),
        ("wdt:P19", Item(WIKIDATA + "P19", "place of birth")),
        ("located in", Item("urn:kbqa:r:located%20in", "urn:kbqa:r:located%20in")),
    ],
)
def test_what_names_an_item_but_for_case_and_punctuation_scores_1(ranker, query, item):
    assert ranker.rank(query, [item])[0].score == 1.0


@pytest.mark.parametrize(
    "query", ["children", "person children", "people.person.child", "place of birth", "?"]
)
def test_a_part_of_a_name_is_not_the_name(ranker, query):
    assert ranker.rank(query)[0].score < 1.0


def test_of_equal_scores_the_most_literal_comes_first(ranker):
    items = [Item("b", "Starring"), Item("a", "star ring"), Item("starring", "z"), Item("c", "starring")]
    ranked = ranker.rank("starring", items)
    assert [item.id for item in ranked] == ["starring", "c", "b", "a"]
    assert {item.score for item in ranked} == {1.0}


def test_the_better_of_label_and_id_counts(ranker):
    item = Item(FREEBASE + "film.film.directed_by", "Regisseur")
    by_id, by_label = ranker.rank("directed by", [item])[0].score, ranker.rank("regisseure", [item])[0].score
    # 10 trigrams, of the 10 and twice 4 (`film` comes twice) of the id: squared, 10 + 4 * 4.
    assert by_id == pytest.approx(10 / np.sqrt(10 * 26), abs=0.05)
    assert by_label > 0.8


@given(
    st.lists(st.sampled_from(["place", "of", "birth", "by", "film", "star", "role"]), min_size=1, max_size=4),
    st.lists(st.text("abcde._ ", min_size=1, max_size=12), min_size=1, max_size=12, unique=True),
    st.integers(1, 14),
)
def test_ranking_is_that_of_the_encoder(query, names, top_k):
    """Whatever is known already, and whichever of it is asked for."""
    text = " ".join(query)
    encoder = NgramEncoder()
    ranker = Ranker(encoder, lambda: named(*NAMES))
    ranker.warm()
    ranked = ranker.rank(text, named(*names))
    assert sorted(item.id for item in ranked) == sorted(names)
    for item in ranked:
        similarity = float(encoder.encode([item.id])[0] @ encoder.encode_query(text))
        same = "".join(filter(str.isalnum, item.id)) == "".join(query)
        assert item.score == pytest.approx(1.0 if same else similarity, abs=1e-4)
    assert [item.score for item in ranked] == sorted((item.score for item in ranked), reverse=True)
    assert ranker.rank(text, named(*names), top_k=top_k) == ranked[:top_k]


def test_nothing_is_encoded_twice(encoder, ranker):
    ranker.warm()
    before = len(encoder.encoded)
    for _ in range(3):
        ranker.rank("birth", named(*NAMES[:2]))
        ranker.rank("birth")
    assert encoder.encoded[before:] == ["birth"]


def test_what_is_met_before_the_rest_is_encoded_alone(encoder, ranker):
    ranker.rank("birth", named("film.film.genre"))
    assert encoder.encoded == ["film film genre", "birth"]
    ranker.rank("birth")
    assert len(encoder.encoded) == 2 + len(NAMES)


def test_no_items_are_no_ranking(encoder, ranker):
    assert ranker.rank("birth", []) == []
    assert ranker.similarities("birth", []).shape == (0,)
    assert Ranker(encoder, list).rank("birth") == []


def test_similarities_are_of_texts_in_their_order(ranker):
    assert ranker.similarities("birth", ["xyzzy", "birth", "xyzzy"]).tolist() == pytest.approx([0, 1, 0])


def test_vectors_are_kept_from_process_to_process(tmp_path, encoder):
    Ranker(encoder, lambda: named(*NAMES), tmp_path).warm()
    again = CountingEncoder()
    kept = Ranker(again, lambda: named(*NAMES), tmp_path)
    kept.warm()
    assert again.encoded == []
    assert kept.rank("birth") == Ranker(encoder, lambda: named(*NAMES)).rank("birth")


def test_another_schema_or_encoder_has_vectors_of_its_own(tmp_path, encoder):
    Ranker(encoder, lambda: named(*NAMES), tmp_path).warm()
    other = CountingEncoder()
    Ranker(other, lambda: named(*NAMES[:2]), tmp_path).warm()
    assert len(other.encoded) == 2
    other.name = "another"
    Ranker(other, lambda: named(*NAMES), tmp_path).warm()
    assert len(other.encoded) == 2 + len(NAMES)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_damaged_vectors_are_made_again(tmp_path, encoder, damage):
    Ranker(encoder, lambda: named(*NAMES), tmp_path).warm()
    [path] = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged = {"cut": bytes(content[:700]), "flip": bytes(content), "empty": b"", "other": b"hello" * 99}
    path.write_bytes(damaged[damage])
    again = CountingEncoder()
    ranker = Ranker(again, lambda: named(*NAMES), tmp_path)
    assert ranker.rank("birth") == Ranker(encoder, lambda: named(*NAMES)).rank("birth")
    assert len(again.encoded) == len(NAMES) + 1
    assert [file.suffix for file in tmp_path.iterdir()] == [".npz"]
    last = CountingEncoder()
    Ranker(last, lambda: named(*NAMES), tmp_path).warm()
    assert last.encoded == []


def test_a_directory_that_cannot_be_written_costs_nothing_else(tmp_path, encoder):
    (tmp_path / "file").write_text("")
    ranker = Ranker(encoder, lambda: named(*NAMES), tmp_path / "file" / "below")
    assert len(ranker.rank("birth")) == len(NAMES)


def test_warming_that_is_stopped_keeps_nothing_and_hinders_nobody(tmp_path, encoder):
    ranker = Ranker(encoder, lambda: named(*NAMES), tmp_path)
    ranker.warm(lambda: True)
    assert encoder.encoded == []
    assert list(tmp_path.iterdir()) == []
    assert len(ranker.rank("birth")) == len(NAMES)


def test_an_encoder_that_fails_is_asked_again(encoder, ranker):
    encoder.down = True
    for items in (None, named("film.film.genre")):
        with pytest.raises(EncoderUnavailableError):
            ranker.rank("birth", items)
    encoder.down = False
    assert ranker.rank("film genre", named("film.film.genre"))[0].score > 0.8


def test_many_threads_rank_alike(encoder):
    names = [f"domain{n % 7}.type{n % 31}.relation_{n}" for n in range(300)]
    ranker = Ranker(encoder, lambda: named(*names))
    alone = Ranker(NgramEncoder(), lambda: named(*names)).rank("relation 7")

    def rank(n: int) -> list[ScoredItem]:
        return ranker.rank("relation 7", named(*names[n : n + 50]))

    with ThreadPoolExecutor(8) as threads:
        parts = list(threads.map(rank, range(0, 300, 10)))
    for start, part in zip(range(0, 300, 10), parts, strict=True):
        assert part == [item for item in alone if item.id in names[start : start + 50]]


def test_a_graph_has_one_index_as_long_as_it_is_open(encoder):
    schemas = Schemas(encoder)
    store = OxigraphStore.from_triples([("Heat", "directed by", "Michael Mann")])
    index = schemas.of(store)
    assert schemas.of(store) is index
    assert [item.id for item in index.relations.rank("director")] == ["directed by"]
    assert index.types.rank("film") == []
    other = OxigraphStore.from_triples([("Heat", "type.object.type", "film")])
    assert schemas.of(other) is not index
    assert [item.id for item in schemas.of(other).types.rank("films")] == ["film"]


INSTANCES = "<http://x/ada> <http://x/P1> <http://x/london> ; <http://x/P2> <http://x/byron> ."
VOCABULARY = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
<http://x/P1> rdfs:comment "Der Geburtsort."@de, "The city in which a person was born."@en .
<http://x/P2> rdfs:label "parent" ; rdfs:comment "One of the two people of whom a person is a child." .
"""


@pytest.fixture
def vocabulary_of_its_own(tmp_path):
    (tmp_path / "instances.ttl").write_text(INSTANCES)
    (tmp_path / "vocabulary.ttl").write_text(VOCABULARY)
    with closing(GraphCatalog(tmp_path / "home")) as catalog:
        catalog.load("people", GraphSource([tmp_path / "instances.ttl", tmp_path / "vocabulary.ttl"]))
        yield catalog.get("people")


def test_relations_are_also_ranked_by_what_their_vocabulary_says(vocabulary_of_its_own, encoder):
    relations = Schemas(encoder).of(vocabulary_of_its_own).relations
    facts = vocabulary_of_its_own.tail_relations(["http://x/ada"], limit=9).items
    for query, best in (("in which city was she born", "http://x/P1"), ("whose child is she", "http://x/P2")):
        for items in (None, facts):
            first = relations.rank(query, items)[0]
            assert first.id == best
            assert 0 < first.score < 1
    assert relations.rank("parent", facts)[0].score == 1.0
    assert "The city in which a person was born." in encoder.encoded  # English before German


def test_a_server_is_not_asked_for_descriptions(vocabulary_of_its_own, encoder, monkeypatch):
    monkeypatch.setattr(type(vocabulary_of_its_own), "is_remote", True)
    relations = Schemas(encoder).of(vocabulary_of_its_own).relations
    relations.rank("birth", vocabulary_of_its_own.tail_relations(["http://x/ada"], limit=9).items)
    assert not any("born" in text for text in encoder.encoded)
