"""Forms over the embedded index: gold answers of a generated world, paths, bounds, subgraphs, memory."""

from __future__ import annotations

import gc
import random
import weakref

import pytest

from kbqa.datasets.catalog import load_dataset
from kbqa.kg.actions import Item
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.embedded import members, surveying
from kbqa.kg.embedded.adjacency import Adjacency
from kbqa.kg.embedded.indexing import IndexBuilder
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.store import PathStep
from kbqa.kg.subgraphs import Seed, SubgraphWriter
from kbqa.logical_forms.algebra import And, Class, Comparison, Count, Entity, Join, Relation
from kbqa.logical_forms.s_expression import parse_s_expression
from tests.unit.kg.test_forms import EX, TURTLE, form, told


@pytest.fixture(scope="module")
def world():
    return load_dataset("world-all", 1)


@pytest.fixture(scope="module")
def catalog(world, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    catalog = GraphCatalog(home)
    catalog.load("world", world.graph.as_file(home))
    yield catalog
    catalog.close()


def test_the_members_of_a_question_s_form_are_its_gold_answers(world, catalog):
    store = catalog.get("world")
    questions = [*world.splits.test, *world.splits.validation]
    operations = {question.operation for question in questions}
    assert len(questions) > 300
    assert len(operations) > 5
    for question in questions:
        gold = parse_s_expression(question.form)
        page = store.members(listable(gold.source if isinstance(gold, Count) else gold), limit=1000)
        # Gold answers are ids, and for literals their texts.
        found = {item.label if item.id.startswith('"') else item.id for item in page.items}
        assert ({str(page.total)} if isinstance(gold, Count) else found) == set(question.answers), question


def listable(asked):
    """A comparison alone as a selection from the class whose members have the relation."""
    if not isinstance(asked, Comparison):
        return asked
    kind, _, _ = asked.path[0].name.rpartition(".")
    return And(Class(kind), asked)


def test_chains_of_joins_are_paths(world):
    """As in MetaQA, whose gold answers are sets without the topic; a path may stay there, a form may not."""
    rng = random.Random(7)
    films = [f"film {n}" for n in range(60)]
    people = [f"person {n}" for n in range(40)]
    triples = [
        (film, relation, person)
        for film in films
        for relation in ("directed by", "starring", "written by")
        for person in rng.sample(people, rng.randint(0, 3))
    ]
    store = OxigraphStore.from_triples(triples)
    compared = 0
    for _ in range(200):
        topic = rng.choice(films + people)
        steps = [(rng.choice(triples)[1], rng.random() < 0.5) for _ in range(rng.randint(1, 3))]
        walk = store.follow([topic], [PathStep((name,), inverse) for name, inverse in steps], limit=99)
        chain = Entity(topic)
        for name, inverse in steps:
            chain = Join(Relation(name, inverse=not inverse), chain)
        if not any(topic in via[1:] for via in walk.vias) and Item(topic, topic) not in walk.ends.items:
            assert store.members(chain, limit=99) == walk.ends, (topic, steps)
            compared += bool(walk.ends.total)
    assert compared > 40


def index_of(directory, triples):
    builder = IndexBuilder(named=False)
    for triple in triples:
        builder.add(*triple)
    builder.write(directory)
    return Adjacency(directory)


def test_a_bound_is_reported_and_the_smaller_set_is_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "MAX_FRONTIER", 20)
    triples = [(f"n{n:03}", "in", "hub") for n in range(100)]
    triples += [("n099", "likes", "x"), ("n098", "likes", "x"), ("n099", "size", '"1"'), ("n099", "in", "y")]
    index = index_of(tmp_path, triples)

    def page(text, **options):
        return index.members(parse_s_expression(text), limit=99, **options)

    everyone = page("(JOIN in hub)")
    assert (everyone.total, everyone.complete) == (20, False)
    for text in ("(AND (JOIN in hub) (JOIN likes x))", "(AND (JOIN likes x) (JOIN in hub))"):
        both = page(text)
        assert ([item.id for item in both.items], both.complete) == (["n098", "n099"], True)
    assert not page("(JOIN (R in) (JOIN in hub))", returning=True).complete
    lost = page("(AND (JOIN likes x) (JOIN in (JOIN (R in) (JOIN in hub))))", returning=True)
    assert not lost.complete


def test_a_hub_costs_no_more_and_hides_no_bond(tmp_path, monkeypatch):
    monkeypatch.setattr(surveying, "_MAX_AROUND", 50)
    triples = [(f"n{n}", "in", "hub") for n in range(300)]
    triples += [("a", "in", "hub"), ("a", "knows", "b"), ("b", "in", "hub"), ("hub", "next to", "island")]
    triples += [("hub", "part of", "all"), ("island", "part of", "all")]
    index = index_of(tmp_path, triples)
    # From one node to the hub and by way of a neighbour to it, though the hub has 300 more neighbours.
    known = parse_s_expression("(JOIN (R knows) a)")
    assert told(index.survey(known, ["hub"]))["bonds"]["hub"] == [(("in",), 1)]
    knowing = parse_s_expression("(JOIN knows b)")
    assert told(index.survey(knowing, ["hub"]))["bonds"]["hub"] == [(("in",), 1)]
    # Of the two members that are part of all, the hub has too many neighbours to go through.
    two = told(index.survey(parse_s_expression("(JOIN `part of` all)"), ["a", "island"]))["bonds"]
    assert two["a"] == [(("^in",), 1), (("^next to", "^in"), 1)]
    assert two["island"] == [(("next to",), 1)]


def test_a_subgraph_restricts_members_and_surveys(tmp_path):
    (tmp_path / "graph.ttl").write_text(TURTLE)
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)

    def write(store, directory):
        with SubgraphWriter(store, directory, source="asked", seed=Seed.TOPICS, hops=1) as writer:
            writer.add_search("q", [f"{EX}heat"])
            return writer.finish()

    catalog.load("films", tmp_path / "graph.ttl")
    catalog.add_subgraphs("films", write)
    whole = catalog.get("films")
    part = whole.subgraph("q")
    topic = form("(JOIN (R :director) :heat)")
    assert part.members(topic, limit=9) == whole.members(topic, limit=9)
    assert part.members(form("(JOIN (R :star) Heat)"), limit=9).total == 2
    # The director's other films, and all facts of his but one, are elsewhere; and so are other classes.
    for text in ("(JOIN :director (JOIN (R :director) :heat))", ":Person", "(JOIN (R :star) :ali)"):
        assert part.members(form(text), limit=9).total == 0
        assert whole.members(form(text), limit=9).total > 0
    assert [item.id for item in part.members(form(":Film"), limit=9).items] == [f"{EX}heat"]
    one, other = told(part.survey([f"{EX}heat"])), told(whole.survey([f"{EX}heat"]))
    # The gross is two hops away.
    assert one.pop("attributes") == [a for a in other.pop("attributes") if a[0] != ("gross", "dollars")]
    assert one == other
    found = told(part.survey(topic))
    assert (found["out"], found["into"], found["classes"]) == (("likes",), ("director",), [])
    assert whole.survey(topic, [f"{EX}ali"]).bonds[f"{EX}ali"]
    assert not part.survey(topic, [f"{EX}ali"]).bonds[f"{EX}ali"]
    catalog.close()


def test_an_unused_store_is_freed_with_its_forms(tmp_path):
    index = index_of(tmp_path, [("a", "r", "b"), ("b", "r", "c")])
    chain = parse_s_expression("(JOIN (R r) (JOIN (R r) a))")
    assert index.members(chain, limit=9).total == 1
    assert told(index.survey(chain, ["a"]))["bonds"] == {"a": [(("^r", "^r"), 1)]}
    forms = weakref.ref(index._forms)
    freed = weakref.ref(index)
    gc.disable()
    try:
        del index
        assert freed() is None
        assert forms() is None
    finally:
        gc.enable()
