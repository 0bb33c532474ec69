"""One-hop look-ups against a naive reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbqa.kg.actions import Item
from kbqa.kg.adjacency import Adjacency

ENTITIES = st.sampled_from(["a", "b", "c", "d", "1999", "a b", "é"])
RELATIONS = st.sampled_from(["r", "s", "a"])
GRAPHS = st.sets(st.tuples(ENTITIES, RELATIONS, ENTITIES), max_size=40)


def adjacency(triples):
    return Adjacency(tuple(Item(name, name) for name in triple) for triple in triples)


def page(items, limit, offset):
    found = sorted(set(items))
    return found[offset : offset + limit], len(found)


def names(found):
    assert all(item.id == item.label for item in found.items)
    return [item.id for item in found.items], found.total


@given(GRAPHS, ENTITIES, RELATIONS, st.integers(1, 5), st.integers(0, 5))
def test_look_ups_agree_with_a_scan_of_the_triples(triples, e, r, limit, offset):
    graph = adjacency(triples)
    cut = {"limit": limit, "offset": offset}

    tails = [o for s, p, o in triples if (s, p) == (e, r)]
    heads = [s for s, p, o in triples if (o, p) == (e, r)]
    assert names(graph.tail_entities([e], [r], **cut)) == page(tails, **cut)
    assert names(graph.head_entities([e], [r], **cut)) == page(heads, **cut)
    assert names(graph.tail_relations([e], **cut)) == page([p for s, p, _ in triples if s == e], **cut)
    assert names(graph.head_relations([e], **cut)) == page([p for _, p, o in triples if o == e], **cut)
    assert graph.triples == len(triples)
    assert bool(graph.resolve_entity(e)) == any(e in (s, o) for s, _, o in triples)
    assert bool(graph.resolve_relation(r)) == any(p == r for _, p, _ in triples)


@given(GRAPHS, st.lists(ENTITIES, min_size=2, max_size=3, unique=True), RELATIONS)
def test_several_entities_mean_the_union_of_their_neighbours(triples, several, r):
    graph = adjacency(triples)
    union = [o for s, p, o in triples if s in several and p == r]
    assert names(graph.tail_entities(several, [r], limit=100)) == page(union, 100, 0)


def test_a_hub_is_cut_to_the_limit_and_its_total_kept():
    graph = adjacency(("hub", "r", f"{n:05}") for n in range(5000))
    found = graph.tail_entities(["hub"], ["r"], limit=3, offset=4998)
    assert [item.id for item in found.items] == ["04998", "04999"]
    assert found.total == 5000


def test_a_name_can_be_an_entity_and_a_relation():
    graph = adjacency([("a", "a", "b")])
    assert graph.resolve_entity("a") == graph.resolve_relation("a") == ("a",)
    assert graph.resolve_relation("b") == ()


def test_items_are_ordered_by_label_then_id_and_an_ambiguous_label_names_all():
    r = Item("r", "r")
    paris = [Item("Q2", "Paris"), Item("Q1", "Paris")]
    graph = Adjacency([(paris[0], r, paris[1]), (paris[1], r, paris[0]), (paris[1], r, Item("Q0", "Zürich"))])
    assert graph.resolve_entity("Paris") == ("Q1", "Q2")
    found = graph.tail_entities(("Q1", "Q2"), ("r",), limit=10)
    assert [item.id for item in found.items] == ["Q1", "Q2", "Q0"]
