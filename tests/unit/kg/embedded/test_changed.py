"""A graph that changed answers as the same graph loaded from a file, for every way to look at it."""

from __future__ import annotations

import random
from itertools import product

import pyoxigraph as ox
import pytest

from kbqa.kg.embedded.changed import ChangedStore
from kbqa.kg.embedded.overlay import Difference, NotAnOverlayError
from kbqa.kg.embedded.oxigraph import OxigraphStore, write_graph
from kbqa.kg.loading.facts import Fact
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.store import PathStep
from kbqa.logical_forms.algebra import Class
from kbqa.logical_forms.s_expression import parse_s_expression as parse

SEEDS, MORE_SEEDS = 6, 100
RDFS, SKOS = "http://www.w3.org/2000/01/rdf-schema#", "http://www.w3.org/2004/02/skos/core#"
XSD = "http://www.w3.org/2001/XMLSchema#"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
PEOPLE = [f"http://x/p{n}" for n in range(8)]
CLASSES = ["http://x/City", "http://x/Person"]
NAMES = ["Ann", "Bea", "ann lee", "Zoe Brown", "City"]
LITERALS = [
    *(f'"{name}"' for name in NAMES),
    *('"Ann"@de', '"Zoé"@fr', '"Zoe Brown"@en', '""', f'"7"^^<{XSD}integer>', f'"12"^^<{XSD}integer>'),
]
ENTITY_LINKS, VALUE_LINKS = (
    ["http://x/knows", "http://x/in"],
    ["http://x/size", "http://x/title", "http://x/note"],
)
LABELS = [f"{RDFS}label", f"{SKOS}altLabel"]


def any_triple(rng: random.Random) -> tuple[str, str, str]:
    head = rng.choice(PEOPLE)
    kind = rng.random()
    if kind < 0.45:
        return head, rng.choice(ENTITY_LINKS), rng.choice(PEOPLE)
    if kind < 0.6:
        return head, TYPE, rng.choice(CLASSES)
    if kind < 0.8:
        return head, rng.choice(VALUE_LINKS), rng.choice(LITERALS)
    if kind < 0.97:
        return rng.choice([*PEOPLE, *CLASSES]), rng.choice(LABELS), rng.choice(LITERALS[:9])
    return rng.choice(ENTITY_LINKS), LABELS[0], rng.choice(LITERALS[:2])


def term(id_: str) -> str:
    return id_ if id_.startswith('"') else f"<{id_}>"


def written(directory, triples) -> OxigraphStore:
    directory.mkdir()
    lines = "".join(f"{term(h)} {term(r)} {term(t)} .\n" for h, r, t in sorted(triples))
    write_graph(directory, map(Fact, ox.parse(lines.encode(), format=ox.RdfFormat.N_TRIPLES)), named=False)
    return OxigraphStore(directory, version="v", named=False, queries=NO_QUERIES)


NO_QUERIES = QueryPool(size=1)


def assert_equal(changed, loaded, ids, relations) -> None:
    many = 100
    assert changed.triples == loaded.triples
    assert changed.entities == loaded.entities
    assert list(changed.relations()) == list(loaded.relations())
    assert list(changed.types()) == list(loaded.types())
    assert set(changed.nodes()) == set(loaded.nodes())
    for id_ in [*ids, *relations, *NAMES, "7", "Zoé", ""]:
        assert changed.item(id_) == loaded.item(id_)
        assert changed.resolve_entity(id_) == loaded.resolve_entity(id_)
        assert changed.resolve_relation(id_) == loaded.resolve_relation(id_)
    for some in [*([id_] for id_ in ids), ids[:3], ids]:
        assert changed.tail_relations(some, limit=many) == loaded.tail_relations(some, limit=many)
        assert changed.head_relations(some, limit=many) == loaded.head_relations(some, limit=many)
        assert changed.adjacent(some) == loaded.adjacent(some)
        assert changed.survey(some) == loaded.survey(some)
        for relation in relations:
            for look_up in ("tail_entities", "head_entities"):
                expected = getattr(loaded, look_up)(some, [relation], limit=3, offset=1)
                assert getattr(changed, look_up)(some, [relation], limit=3, offset=1) == expected
        for one, other in product(ENTITY_LINKS, [*VALUE_LINKS[:1], TYPE, *ENTITY_LINKS]):
            for inverse in (False, True):
                steps = [PathStep((one, LABELS[0]), inverse), PathStep((other,))]
                assert changed.follow(some, steps, limit=many) == loaded.follow(some, steps, limit=many)
    for text in FORMS:
        form = parse(text)
        assert changed.members(form, limit=many) == loaded.members(form, limit=many)
        assert changed.survey(form, [PEOPLE[0]]) == loaded.survey(form, [PEOPLE[0]])
    for question in QUESTIONS:
        assert set(changed.link(question)) == set(loaded.link(question)), question


FORMS = [
    "(JOIN http://x/knows http://x/p1)",
    "(JOIN (R http://x/knows) http://x/p2)",
    "(AND http://x/Person (JOIN http://x/in http://x/p3))",
    "(JOIN http://x/knows (JOIN http://x/in http://x/p0))",
    "(ARGMAX http://x/Person http://x/size)",
    f"(AND http://x/City (ge http://x/size 8^^{XSD}integer))",
]
QUESTIONS = [  # fmt: skip
    "who knows Ann?",
    "Where does Zoe Brown live, and Bea?",
    "what is Zoe Browne",
    "is ann lee in City",
    "Zoé",
]


@pytest.mark.parametrize(
    "seed",
    [
        *range(SEEDS),
        *(pytest.param(seed, marks=pytest.mark.integration) for seed in range(SEEDS, MORE_SEEDS)),
    ],
)
def test_a_changed_graph_equals_the_graph_loaded_from_the_changed_file(tmp_path, seed):
    rng = random.Random(seed)
    triples = {any_triple(rng) for _ in range(rng.choice([6, 25, 60]))}
    base = written(tmp_path / "base", triples)
    state = set(triples)
    overlaid = 0
    for step in range(3):
        for _ in range(rng.randrange(1, 10)):
            if state and rng.random() < 0.5:
                state.discard(rng.choice(sorted(state)))
            else:
                state.add(any_triple(rng))
        if not state:
            continue
        difference = Difference(frozenset(state - triples), frozenset(triples - state))
        try:
            changed = ChangedStore(tmp_path, base, difference, version="v+1", queries=NO_QUERIES)
        except NotAnOverlayError:
            continue
        overlaid += 1
        loaded = written(tmp_path / f"after{step}", state)
        ids = [*PEOPLE, *CLASSES, *LITERALS, "http://x/nobody"]
        assert_equal(changed, loaded, ids, [*ENTITY_LINKS, *VALUE_LINKS, *LABELS, TYPE])
    if seed == 0:
        assert overlaid


def test_in_a_graph_of_names_a_change_may_be_the_first_to_say_what_things_are(tmp_path):
    triples, more = [("Heat", "by", "Mann")], [("Heat", "is a", "film"), ("Ali", "is a", "film")]
    base, loaded = OxigraphStore.from_triples(triples), OxigraphStore.from_triples(triples + more)
    difference = Difference(frozenset(more), frozenset())
    changed = ChangedStore(tmp_path, base, difference, version="v+1", queries=NO_QUERIES)
    assert changed.type_relations == loaded.type_relations == ("is a",)
    assert list(changed.types()) == list(loaded.types())
    assert changed.vocabulary == loaded.vocabulary
    assert changed.members(Class("film"), limit=9) == loaded.members(Class("film"), limit=9)
