"""Chains of triples, on runs worked by hand."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kbqa.evidence import FollowedPath, Retrieved, hops
from kbqa.trajectory import ExecutedAction


def tails(entity, relation, *found, labels=None):
    return ExecutedAction(
        "get_tail_entities", {"entity": entity, "relation": relation}, None, found, labels or found
    )


def heads(entity, relation, *found):
    return ExecutedAction("get_head_entities", {"entity": entity, "relation": relation}, None, found, found)


def followed(entity, *path, found, via, **arguments):
    """A path that was followed, with what the graph said of the way to its first ends."""
    arguments = {"entity": entity, "path": json.dumps(path), "question": "who?", **arguments}
    details = {"via": via, "relations": []}
    return ExecutedAction("follow_path", arguments, None, found, found, details=details)


CO_STARS = followed(
    "Big",
    *("starred", "^starred", "born in"),
    found=("Dixon", "Rome"),
    via=[["Big", "Hanks", "Philadelphia"], ["Big", "Perkins", "Avalon"]],
)
STARRED = ("Big", "starred", "Hanks")


def test_a_path_is_a_triple_a_hop_from_its_start_to_its_end():
    run = Retrieved([CO_STARS])
    assert run.chain("Dixon", {"Big"}) == (
        STARRED,
        ("Philadelphia", "starred", "Hanks"),
        ("Philadelphia", "born in", "Dixon"),
    )
    assert run.chain("Hanks", {"Big"}) == (STARRED,)
    assert run.label("Dixon") == "Dixon"
    assert run.label("Hanks") is None


def test_the_hops_of_paths_that_begin_alike_are_told_once():
    told = followed("a", "r", "s", found=("x", "y"), via=[["a", "b"], ["a", "b"]])
    assert [hop.triple for hop in hops(told)] == [("a", "r", "b"), ("b", "s", "x"), ("b", "s", "y")]


def test_a_path_and_single_hops_make_one_chain():
    run = Retrieved(
        [followed("Big", "starred", found=("Hanks",), via=[["Big"]]), tails("Hanks", "born", "C")]
    )
    assert run.chain("C", {"Big"}) == (STARRED, ("Hanks", "born", "C"))


def test_an_end_whose_way_was_not_told_has_no_chain_but_a_place():
    told = followed("a", "r", found=("x", "y", "z"), via=[["a"], []], offset="50", **{"return": "true"})
    run = Retrieved([told])
    assert run.chain("x", {"a"}) == (("a", "r", "x"),)
    assert (run.chain("y", {"a"}), run.chain("z", {"a"})) == ((), ())
    assert run.walk("z") == (FollowedPath("a", ("r",), returning=True), 52)
    assert run.walk("b") is None


def test_a_path_without_steps_proves_nothing():
    run = Retrieved([followed("Big", found=("Big",), via=[[]])])
    assert (run.chain("Big", {"Big"}), run.label("Big")) == ((), "Big")


def test_a_tail_is_an_object_and_a_head_a_subject():
    run = Retrieved([tails("Big", "starred", "Hanks"), heads("Hanks", "starred", "Big", "Philadelphia")])
    assert run.chain("Hanks", {"Big"}) == (("Big", "starred", "Hanks"),)
    assert run.chain("Philadelphia", {"Hanks"}) == (("Philadelphia", "starred", "Hanks"),)


def test_two_hops_are_told_from_the_topic_to_the_answer():
    run = Retrieved([tails("Big", "starred", "Perkins", "Hanks"), tails("Hanks", "born in", "Concord")])
    assert run.chain("Concord", {"Big"}) == (("Big", "starred", "Hanks"), ("Hanks", "born in", "Concord"))


def test_the_shortest_chain_is_told():
    run = Retrieved(
        [tails("A", "r", "B"), tails("B", "r", "C"), tails("C", "r", "D"), tails("A", "short", "D")]
    )
    assert run.chain("D", {"A"}) == (("A", "short", "D"),)


def test_an_answer_that_is_a_topic_entity_too_needs_a_triple_that_leads_to_it():
    run = Retrieved([tails("Hanks", "starred in", "Big"), heads("Big", "starred in", "Hanks", "Perkins")])
    assert run.chain("Hanks", {"Hanks"}) == (("Hanks", "starred in", "Big"),)
    assert Retrieved([]).chain("Hanks", {"Hanks"}) == ()


def test_a_chain_without_a_topic_begins_where_the_policy_began():
    run = Retrieved([tails("Guess", "r", "B"), tails("B", "s", "C")])
    assert run.chain("C", {"Topic"}) == (("Guess", "r", "B"), ("B", "s", "C"))


def test_loops_end():
    run = Retrieved([tails("A", "r", "B"), tails("B", "r", "A"), tails("B", "self", "B")])
    assert run.chain("B", {"Topic"}) == (("A", "r", "B"),)
    assert run.chain("B", {"B"}) == (("B", "self", "B"),)


def test_failed_actions_and_lists_of_relations_prove_nothing():
    failed = ExecutedAction("get_tail_entities", {"entity": "A", "relation": "r"}, "KG_NO_RESULTS")
    relations = ExecutedAction("get_tail_relations", {"entity": "A"}, None, ("r",), ("r",))
    run = Retrieved([failed, relations])
    assert run.chain("r", {"A"}) == ()
    assert run.label("r") is None


def test_labels_are_cited_as_the_ids_that_were_seen_under_them():
    relations = ExecutedAction("get_tail_relations", {"entity": "m.1"}, None, ("p.star",), ("starred",))
    run = Retrieved(
        [
            relations,
            tails("m.1", "starred", "m.2", labels=("Hanks",)),
            tails("Hanks", "born", "m.3", labels=("Concord",)),
        ]
    )
    assert run.chain("m.3", {"m.1"}) == (("m.1", "p.star", "m.2"), ("m.2", "born", "m.3"))
    assert run.label("m.3") == "Concord"


def test_a_label_of_several_entities_is_cited_as_written():
    run = Retrieved(
        [
            tails("m.1", "kin", "m.2", "m.3", labels=("Ann", "Ann")),
            tails("Ann", "born", "m.4", labels=("Rome",)),
        ]
    )
    assert run.chain("m.4", {"m.1"}) == (("Ann", "born", "m.4"),)


NAMES = st.sampled_from("ABCDEF")
ACTIONS = st.lists(
    st.builds(
        lambda forwards, e, r, found: (tails if forwards else heads)(e, r, *found),
        st.booleans(),
        NAMES,
        st.sampled_from("rs"),
        st.lists(NAMES, min_size=1, max_size=3, unique=True),
    ),
    max_size=8,
)


@given(ACTIONS, NAMES, st.sets(NAMES))
def test_every_cited_triple_is_of_an_executed_action_and_they_connect(actions, target, topics):
    returned = set()
    for action in actions:
        for item in action.items:
            pair = (action.arguments["entity"], item)
            source, end = pair if action.name == "get_tail_entities" else pair[::-1]
            returned.add((source, action.arguments["relation"], end))
    chain = Retrieved(actions).chain(target, topics)
    assert set(chain) <= returned
    assert bool(chain) == any(target in action.items for action in actions)
    places = [{s, o} for s, _, o in chain]
    assert all(a & b for a, b in zip(places, places[1:], strict=False))
    assert not chain or target in places[-1]
