import json
from collections import Counter

import pytest

from kbqa.datasets.world.everything import ASKED, generate_world_all
from kbqa.datasets.world.members import members
from kbqa.datasets.world.schema import RDF_TERMS
from kbqa.datasets.world.vocabulary import WORLD
from kbqa.datasets.world.walks import Limits
from kbqa.kg.catalog import GraphCatalog
from kbqa.logical_forms.actions import build, to_actions
from kbqa.logical_forms.algebra import Literal, canonical, entities, equivalent
from kbqa.logical_forms.compiler import Distinct, to_sparql
from kbqa.logical_forms.s_expression import parse_s_expression, print_s_expression

SIZES = {"cold_start": 36, "train": 90, "validation": 18, "test": 72}
SEEDS = (1, 2)


@pytest.fixture(scope="module", params=SEEDS)
def world(request):
    return generate_world_all(request.param, SIZES, "world-all")


@pytest.fixture(scope="module")
def store(world, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    file = home / "graph.nt"
    file.write_text("\n".join(world[0].lines()) + "\n", encoding="utf-8")
    catalog = GraphCatalog(home)
    catalog.load("world-all", file)
    yield catalog.get("world-all")
    catalog.close()


def everything(splits):
    return [*splits.cold_start, *splits.train, *splits.validation, *splits.test]


def solutions(store, query):
    bindings = json.loads(store.query(query, deadline_s=60.0).body)["results"]["bindings"]
    return {row["x"]["value"] for row in bindings if "x" in row}


def test_the_gold_query_finds_exactly_the_gold_answers(world, store):
    for question in everything(world[1]):
        assert solutions(store, question.sparql) == set(question.answers), question


def test_the_form_compiles_to_the_answers_whichever_nodes_have_to_differ(world, store):
    for question in world[1].test:
        form = parse_s_expression(question.form)
        for distinct in Distinct:
            query = to_sparql(form, RDF_TERMS, distinct=distinct)
            if distinct is not Distinct.NODES:  # on the way a path may meet a node again
                assert solutions(store, query) == set(question.answers), question


def test_every_form_is_written_as_it_is_read_and_acted_out(world):
    for question in everything(world[1]):
        form = parse_s_expression(question.form)
        assert print_s_expression(form) == question.form
        assert equivalent(build(to_actions(form)), form)


def test_every_operation_has_its_part_in_every_split(world):
    for split, size in SIZES.items():
        counts = Counter(question.operation for question in getattr(world[1], split))
        assert counts == dict.fromkeys(ASKED, size // len(ASKED))


def test_no_form_occurs_twice(world):
    forms = [canonical(parse_s_expression(question.form)) for question in everything(world[1])]
    assert len(set(forms)) == len(forms)


def test_answers_are_few_and_at_least_one(world):
    assert all(1 <= len(question.answers) <= Limits().answers for question in everything(world[1]))


def test_a_question_names_its_topics_by_their_labels(world):
    facts, splits = world
    naming = [(question, entities(parse_s_expression(question.form))) for question in everything(splits)]
    assert any(named for _, named in naming)
    for question, named in naming:
        assert all(facts.names[entity] in question.text for entity in named)
        assert set(named) <= set(question.topic_entities)


def test_namesakes_are_told_apart_by_what_they_are(world):
    facts, splits = world
    questions = [q for q in everything(splits) if q.operation == "namesake"]
    for question in questions:
        meant, *others = entities(parse_s_expression(question.form))
        assert not others
        assert len(question.topic_entities) > 1
        assert {facts.names[entity] for entity in question.topic_entities} == {facts.names[meant]}
        kinds = [facts.kinds[entity] for entity in question.topic_entities]
        assert len(set(kinds)) == len(kinds)
        assert f"the {WORLD.kinds[facts.kinds[meant]].singular} {facts.names[meant]}" in question.text


def test_a_dead_end_has_a_reverse_that_finds_nothing(world):
    facts, splits = world
    reverses = {
        "world:film.film.directed_by": "world:film.director.films",
        "world:film.film.starring": "world:film.actor.films",
        "world:book.book.author": "world:book.author.books",
        "world:people.person.parents": "world:people.person.children",
        "world:event.event.winner": "world:event.champion.victories",
        "world:organization.company.founder": "world:people.founder.companies",
    }
    said = {relation for _, relation, _ in facts.facts}
    for question in everything(splits):
        if question.operation == "dead end":
            (entity,) = entities(parse_s_expression(question.form))
            reverse = reverses[question.path[0].relation]
            assert reverse in said  # of others
            assert (entity, reverse) not in facts.tails


def test_numbers_and_dates_are_typed(world):
    datatypes = {
        tail.datatype.partition("#")[2] for _, _, tail in world[0].facts if isinstance(tail, Literal)
    }
    assert datatypes == {"integer", "float", "date", "gYear"}


def test_the_test_split_has_all_levels_of_generalisation(world):
    levels = Counter(question.level for question in world[1].test)
    assert set(levels) == {"i.i.d.", "compositional", "zero-shot"}
    assert min(levels.values()) >= len(world[1].test) // 10


def test_an_operation_is_asked_for_in_several_ways(world):
    for operation in ("path", "count", "superlative"):
        openings = {q.text.split()[0] for q in world[1].train if q.operation == operation}
        assert len(openings) >= 3


def test_a_seed_gives_the_same_questions_and_another_seed_others():
    sizes = dict.fromkeys(SIZES, 9)
    assert generate_world_all(5, sizes, "w") == generate_world_all(5, sizes, "w")
    assert generate_world_all(5, sizes, "w")[1] != generate_world_all(6, sizes, "w")[1]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_seed_sets_aside_every_operation_can_be_trained_on(seed):
    _, splits = generate_world_all(
        seed, {"cold_start": 9, "train": 9, "validation": 9, "test": 9}, "world-all"
    )
    assert Counter(question.operation for question in splits.train) == dict.fromkeys(ASKED, 1)


def test_members_of_forms_by_hand(world):
    facts = world[0]
    film = facts.members["film"][0]
    (director,) = facts.tails[film, "world:film.film.directed_by"]
    films = members(facts, parse_s_expression(f"(JOIN world:film.film.directed_by {director})"))
    assert film in films
    assert all(director in facts.tails[other, "world:film.film.directed_by"] for other in films)
