"""Invented schemas, and the many worlds that are made of them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations

import pytest

from kbqa.cold_start.demonstrations import is_right, play_program
from kbqa.datasets.world.inventing import Inventor
from kbqa.datasets.world.many import Sizes, generate_worlds, planned
from kbqa.datasets.world.operations import OPERATIONS
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import FormChoosingProtocol
from tests.unit.datasets.world.wordnet import lexicon_or_skip

SIZES = Sizes(worlds=3, held_out=1, demonstrated=40, questions=20)


@pytest.fixture(scope="module")
def inventor():
    return Inventor(lexicon_or_skip())


@pytest.fixture(scope="module")
def worlds():
    lexicon_or_skip()
    return generate_worlds(1, SIZES)


@pytest.fixture(scope="module")
def catalog(worlds, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    catalog = GraphCatalog(home)
    for name, graph in worlds[1].items():
        (home / "graph.nt").write_text(graph, encoding="utf-8")
        catalog.load(name, home / "graph.nt")
    yield catalog
    catalog.close()


def everything(splits):
    return [*splits.cold_start, *splits.train, *splits.validation, *splits.test]


def test_the_same_seed_gives_the_same_worlds(worlds):
    again, graphs = generate_worlds(1, SIZES)
    assert (again, graphs) == worlds
    assert (
        generate_worlds(2, Sizes(worlds=1, held_out=1, demonstrated=2, questions=3))[1]
        .keys()
        .isdisjoint(graphs)
    )


def test_what_is_held_out_is_a_schema(worlds):
    splits, graphs = worlds
    by_split = [{question.kg for question in part} for part in (splits.train, splits.validation, splits.test)]
    assert [len(names) for names in by_split] == [3, 1, 1]
    assert set.union(*by_split) == graphs.keys()  # so no world is in two splits
    assert {question.kg for question in splits.cold_start} == by_split[0]
    assert [len(part) for part in (splits.cold_start, splits.train, splits.test)] == [3 * 40, 3 * 20, 20]
    assert len({question.id for question in everything(splits)}) == 3 * 60 + 2 * 20


def test_the_plan_says_which_worlds_there_are_and_of_which_domains(worlds):
    plan = planned(1, SIZES)
    assert [world.name for world in plan] == list(worlds[1])
    assert [world.domain is None for world in plan] == [number % 3 == 0 for number in range(len(plan))]
    parted = {
        split: {world.domain for world in planned(1) if world.split == split and world.domain}
        for split in ("train", "validation", "test")
    }
    assert all(parted.values())
    assert sum(map(len, parted.values())) == len(set.union(*parted.values()))  # no domain is in two splits


def test_the_worlds_take_turns(worlds):
    """So that a limit takes questions about all of them."""
    assert len({question.kg for question in worlds[0].cold_start[:3]}) == 3
    assert len({question.kg for question in worlds[0].train[:3]}) == 3


def test_every_operation_is_asked_for_and_paths_most(worlds):
    counts = Counter(question.operation for question in everything(worlds[0]))
    assert counts.keys() == OPERATIONS.keys()
    assert counts.most_common(1)[0][0] == "path"


def test_schemas_share_no_more_than_chance(inventor):
    """Two draws of some 20 relations from thousands of words have a name in common now and then."""
    named = [
        {link.label or link.name.rpartition(".")[2].lower() for link in inventor.schema(seed).links}
        for seed in range(50)
    ]
    shared = [len(one & other) / min(len(one), len(other)) for one, other in combinations(named, 2)]
    assert max(shared) < 0.4
    assert sum(shared) / len(shared) < 0.02


def test_schemas_are_called_in_several_styles(inventor):
    names = [[link.name for link in inventor.schema(seed).links] for seed in range(40)]
    styles = {
        "dotted": any(all("." in name for name in some) for some in names),
        "snake": any(any("_" in name and "." not in name for name in some) for some in names),
        "camel": any(any(name != name.lower() and name[0].islower() for name in some) for some in names),
        "opaque": any(all(name[1:].isdigit() for name in some) for some in names),
    }
    assert all(styles.values()), styles


def test_kinds_are_related_to_themselves_in_some_schemas(inventor):
    """There, the graph does not say which relation comes first."""
    shares = []
    for seed in range(40):
        links = inventor.schema(seed).links
        shares.append(sum(link.tails[0] == link.head for link in links) / len(links))
    assert max(shares) > 0.4
    assert min(shares) < 0.2


def test_some_schemas_are_terse_and_things_share_things(inventor):
    schemas = [inventor.schema(seed).links for seed in range(40)]
    longest = [max(len(phrase) for link in links for phrase in link.forward) for links in schemas]
    assert max(longest) > 1.5 * min(longest)
    sharing = [phrase for links in schemas for link in links for phrase in (*link.same_tail, *link.same_head)]
    assert any("the same" in phrase for phrase in sharing)
    assert all(phrase.count("{}") == 1 for phrase in sharing)


def test_families_come_in_some_schemas(inventor):
    named = {link.label or link.name.lower() for seed in range(60) for link in inventor.schema(seed).links}
    assert any(word in name for name in named for word in ("mother", "father", "husband", "wife", "daughter"))


def test_a_question_seldom_says_what_the_graph_says(worlds):
    """Otherwise matching letters would be enough."""
    paths = [question for question in everything(worlds[0]) if question.operation == "path"]
    graphs = worlds[1]
    said = 0
    for question in paths:
        label = question.path[-1].relation
        if f"<{label}> <http://www.w3.org/2000/01/rdf-schema#label>" in graphs[question.kg]:
            continue
        word = (
            label.rpartition("/")[2].rpartition("#")[2].rpartition(".")[2].replace("_", " ").replace("-", " ")
        )
        said += word.lower() in question.text.lower()
    assert said < 0.5 * len(paths)


def test_gold_queries_find_exactly_the_gold_answers(worlds, catalog):
    for question in everything(worlds[0]):
        body = catalog.get(question.kg).query(question.sparql, deadline_s=60.0).body
        found = json.loads(body)
        if "boolean" in found:
            assert (str(found["boolean"]).lower(),) == question.answers, question
        else:
            rows = found["results"]["bindings"]
            assert {row["x"]["value"] for row in rows} == set(question.answers), question


def test_every_question_can_be_answered_by_choices(worlds, catalog):
    tools, protocol = LocalGraphTools(catalog), FormChoosingProtocol(may_ask=True)
    for question in worlds[0].test:
        played = play_program(question, protocol, tools, max_turns=8)
        assert played is not None, question
        assert is_right(played)
