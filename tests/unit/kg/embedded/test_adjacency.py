"""One-hop look-ups in a written index, against a naive reference over random graphs."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.kg.actions import DatedItem, Item
from kbqa.kg.embedded import sides
from kbqa.kg.embedded.adjacency import Adjacency
from kbqa.kg.embedded.indexing import IndexBuilder
from kbqa.kg.embedded.names import literal_value
from kbqa.kg.store import Page

ENTITIES = st.sampled_from(["a", "b", "c", "d", "1999", "_:x", "é", "😀", "e\u0301", '"a b"', '"1"@en'])
RELATIONS = st.sampled_from(["r", "s", "a", "ü r"])
GRAPHS = st.lists(st.tuples(ENTITIES, RELATIONS, ENTITIES), max_size=40)
# "a" and "1999" are ids too; several may get the same one.
LABELS = st.lists(
    st.tuples(
        st.one_of(ENTITIES, RELATIONS).filter(lambda term: term[0] != '"'),
        st.sampled_from(["A", "B", "", "a", "1999", "Ä", "\U0001f601"]),
    ),
    max_size=12,
)


def adjacency(triples, labels=(), times=()):
    """The index of triples, read back from its files."""
    builder = IndexBuilder(named=False)
    for head, relation, tail in triples:
        builder.add(head, relation, tail)
    for head, relation, tail, when in times:
        builder.add(head, relation, tail, when)
    for preference, (term, label) in enumerate(labels):
        builder.add_label(term, label, preference)
    with tempfile.TemporaryDirectory() as directory:
        builder.write(Path(directory))
        return Adjacency(Path(directory))


class Reference:
    """The same by scanning lists."""

    def __init__(self, triples, labels):
        self.triples = set(triples)
        self.nodes = {n for s, _, o in triples for n in (s, o)}
        self.relations = {r for _, r, _ in triples}
        self.labels = {}
        for term, label in labels:
            self.labels.setdefault(term, []).append(label)
        for node in self.nodes:
            if node.startswith('"'):
                self.labels.setdefault(node, []).append(literal_value(node))

    def item(self, id_):
        return Item(id_, next(filter(None, self.labels.get(id_, ())), id_))

    def resolve(self, name, ids):
        if name in ids:
            return (name,)
        return tuple(sorted(id_ for id_ in ids if name in self.labels.get(id_, ())))

    def page(self, ids, limit, offset):
        found = sorted(map(self.item, set(ids)), key=lambda item: (item.label, item.id))
        return Page(tuple(found[offset : offset + limit]), len(found))


@settings(deadline=None, max_examples=50)
@given(
    GRAPHS, LABELS, st.lists(ENTITIES, min_size=1, max_size=3), st.lists(RELATIONS, min_size=1, max_size=2)
)
def test_look_ups_agree_with_scanning_the_triples(triples, labels, several, links):
    graph, naive = adjacency(triples, labels), Reference(triples, labels)
    for limit, offset in ((100, 0), (2, 0), (1, 1), (3, 2)):
        cut = {"limit": limit, "offset": offset}
        cases = [
            (
                graph.tail_entities(several, links, **cut),
                [o for s, p, o in triples if s in several and p in links],
            ),
            (
                graph.head_entities(several, links, **cut),
                [s for s, p, o in triples if o in several and p in links],
            ),
            (graph.tail_relations(several, **cut), [p for s, p, _ in triples if s in several]),
            (graph.head_relations(several, **cut), [p for _, p, o in triples if o in several]),
        ]
        for found, expected in cases:
            assert found == naive.page(expected, limit, offset)
    adjacent = {o for s, _, o in triples if s in several} | {s for s, _, o in triples if o in several}
    assert graph.adjacent(several) == adjacent


@settings(deadline=None, max_examples=50)
@given(GRAPHS, LABELS, st.text(max_size=3))
def test_names_resolve_to_the_id_itself_or_to_all_that_have_that_label(triples, labels, arbitrary):
    graph, naive = adjacency(triples, labels), Reference(triples, labels)
    names = {
        "a",
        "A",
        "Ä",
        "1",
        "",
        arbitrary,
        *naive.nodes,
        *naive.relations,
        *(label for _, label in labels),
    }
    for name in names:
        assert graph.resolve_entity(name) == naive.resolve(name, naive.nodes)
        assert graph.resolve_relation(name) == naive.resolve(name, naive.relations)
    for id_ in names:
        known = id_ in naive.nodes or id_ in naive.relations
        assert graph.item(id_) == (naive.item(id_) if known else None)


@settings(deadline=None, max_examples=50)
@given(GRAPHS, LABELS)
def test_counts_and_listings_agree_with_the_triples(triples, labels):
    graph, naive = adjacency(triples, labels), Reference(triples, labels)
    assert graph.triples == len(naive.triples)
    assert graph.entities == sum(not node.startswith('"') for node in naive.nodes)
    assert Page(tuple(graph.relations()), len(naive.relations)) == naive.page(naive.relations, 100, 0)
    expected = {(label, naive.item(node)) for node in naive.nodes for label in naive.labels.get(node, ())}
    expected |= {(node, naive.item(node)) for node in naive.nodes if naive.item(node).label == node}
    assert set(graph.nodes()) == {
        (label, item) for label, item in expected if label != item.id or item.label == label
    }


def test_a_page_of_a_hub_is_cut_and_its_total_kept():
    graph = adjacency(("hub", f"r{n % 50:02}", f"{n:05}") for n in range(5000))
    found = graph.tail_entities(["hub"], ["r07"], limit=3, offset=98)
    assert [item.id for item in found.items] == ["04907", "04957"]
    assert found.total == 100
    relations = graph.tail_relations(["hub"], limit=2, offset=10)
    assert ([item.id for item in relations.items], relations.total) == (["r10", "r11"], 50)
    assert graph.tail_entities(["hub"], ["r07"], limit=3, offset=100) == Page((), 100)


def test_a_name_can_be_an_entity_and_a_relation():
    graph = adjacency([("a", "a", "b")])
    assert graph.resolve_entity("a") == graph.resolve_relation("a") == ("a",)
    assert graph.resolve_relation("b") == ()


def test_a_relation_that_is_described_in_the_graph_has_its_label_there():
    graph = adjacency([("a", "r", "b"), ("r", "r", "b")], [("r", "is near")])
    assert graph.relations() == (Item("r", "is near"),)
    assert graph.resolve_relation("is near") == graph.resolve_entity("is near") == ("r",)


def test_what_no_triple_has_is_neither_found_nor_labelled():
    graph = adjacency([("a", "r", "b")], [("z", "nobody")])
    assert graph.resolve_entity("nobody") == ()
    assert graph.item("z") is None
    assert graph.items(["a", "z", "r"]) == {"a": Item("a", "a"), "r": Item("r", "r")}
    assert graph.tail_entities(["z"], ["r"], limit=10) == graph.tail_relations(["z"], limit=10) == Page((), 0)


def test_dated_facts_tell_when_from_both_ends_and_others_do_not():
    graph = adjacency(
        [("a", "r", "c")],
        times=[
            ("a", "r", "b", ["2014-02"]),
            ("a", "r", "b", ["2014-01", "2014-02"]),
            ("d", "r", "b", ["2015"]),
        ],
    )
    assert graph.triples == 3
    dated = DatedItem("b", "b", ("2014-01", "2014-02"))
    assert graph.tail_entities(["a"], ["r"], limit=10).items == (dated, Item("c", "c"))
    heads = graph.head_entities(["b"], ["r"], limit=10).items
    assert heads == (DatedItem("a", "a", ("2014-01", "2014-02")), DatedItem("d", "d", ("2015",)))
    union = graph.tail_entities(["a", "d"], ["r"], limit=1).items
    assert union == (DatedItem("b", "b", ("2014-01", "2014-02", "2015")),)


def test_types_are_the_tails_of_type_relations():
    graph = adjacency(
        [("a", "type.object.type", "t"), ("b", "type.object.type", "t"), ("a", "r", "u")], [("t", "T")]
    )
    assert graph.types() == [Item("t", "T")]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ('"a"', "a"),
        ('"a"@en', "a"),
        ('"1"^^<http://www.w3.org/2001/XMLSchema#integer>', "1"),
        (r'"say \"hi\"\n\\n\u00e9\U0001F600"@en-us', 'say "hi"\n\\né😀'),
        ('""', ""),
    ],
)
def test_the_value_of_a_literal_is_what_it_says(literal, value):
    assert literal_value(literal) == value


@pytest.fixture(scope="module")
def few_at_a_time():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sides, "_COUNTED", 3)
        yield


@given(GRAPHS, st.lists(st.dictionaries(RELATIONS, st.integers(-1, 8)), max_size=4))
@settings(deadline=None)
def test_which_relations_more_triples_have_is_known_without_counting_all(few_at_a_time, triples, asked):
    index = adjacency(triples)
    links = {relation.id: link for link, relation in index.links()}
    number = Counter(relation for _, relation, _ in set(triples))
    for than in asked:
        known = {relation: few for relation, few in than.items() if relation in links}
        expected = {links[relation] for relation, few in known.items() if number[relation] > few}
        assert index.with_more({links[relation]: few for relation, few in known.items()}) == expected
