"""Union of runs, support, kinds and statuses, on runs worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbqa.evidence import Claims, confirmed
from kbqa.kg.actions import Action
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import ExecutedAction, Search, Status, Trajectory, Turn
from services.gateway.answers import answers_of, record, status_of, told_action, usage_of


def tails(entity, relation, *found):
    return ExecutedAction("get_tail_entities", {"entity": entity, "relation": relation}, None, found, found)


def turn(start, end, *actions, observation="", status=Status.OK):
    logprobs = (-0.5,) * (end - start)
    return Turn(
        start, end, logprobs, "", status, "a thought", True, tuple(actions), observation, "v", elapsed_ms=1.5
    )


def run(*answers, actions=(), status=Status.ANSWERED, ids=None):
    """A run that executes its actions in one turn; an answer that they found resolves to itself."""
    found = {item for action in actions for item in action.items}
    turns = (turn(10, 14, *actions, observation="<information>…</information>"), turn(20, 23))
    resolved = ids or tuple((a,) if a in found else () for a in answers)
    return Trajectory((), turns, status, answers, resolved)


def united(runs, topics):
    """The answers of runs, with what they would cite: nobody asks a graph."""
    return answers_of(runs, frozenset(topics), Claims(None, "films"))


STARRED = tails("Big", "starred", "Tom Hanks", "Elizabeth Perkins")


def test_runs_are_united_and_what_most_say_comes_first():
    runs = [
        run("Elizabeth Perkins", actions=[STARRED]),
        run("Tom Hanks", actions=[STARRED]),
        run("tom hanks.", "Elizabeth Perkins", "Tom Hanks"),
    ]
    answers = united(runs, {"Big"})
    assert [(a.value, a.support) for a in answers] == [("Elizabeth Perkins", "2/3"), ("Tom Hanks", "2/3")]
    assert answers[1].evidence.triples == [("Big", "starred", "Tom Hanks")]
    assert (answers[1].kind, answers[1].id, answers[1].label) == ("entity", "Tom Hanks", "Tom Hanks")


def test_a_run_that_repeats_an_answer_supports_it_once():
    assert [a.support for a in united([run("x", "X", actions=[tails("t", "r", "x")])], {"t"})] == ["1/1"]


def test_each_end_of_a_path_is_an_answer_with_its_way_also_beyond_those_that_were_told():
    names = tuple(f"n{n:02}" for n in range(70))
    tools = LocalGraphTools(
        FixedGraphs({"films": OxigraphStore.from_triples(("t", "links", name) for name in names)})
    )
    arguments = {"entity": "t", "path": '["links"]', "relations": "100", "question": "which?"}
    (result,) = tools.execute("films", [Action("follow_path", {"entity": "t", "path": ["links"]})])
    followed = ExecutedAction("follow_path", arguments, None, names, names, details=result.details)
    claims = Claims(tools, "films")
    played = [run(*names, actions=[followed])]
    confirmed(played, frozenset({"t"}), claims)
    answers = answers_of(played, frozenset({"t"}), claims)
    assert {a.id: a.evidence.triples for a in answers} == {name: [("t", "links", name)] for name in names}
    assert not any(a.unsupported for a in answers)
    claims = Claims(tools, "films")
    claims.close()  # no time is left: they are answers all the same
    assert [a.unsupported for a in answers_of(played, frozenset({"t"}), claims)] == [True] * 70


def test_a_path_is_told_as_kg_server_takes_it():
    arguments = {"entity": "1", "question": "2", "path": '["r", "^s"]', "relations": "5", "return": "true"}
    failed = ExecutedAction("follow_path", arguments, "KG_NO_RESULTS")
    told = {"entity": "1", "question": "2", "path": ["r", "^s"], "relations": 5, "return": True}
    assert told_action(failed) == {"action": "follow_path", **told, "code": "KG_NO_RESULTS"}
    assert told_action(Action("follow_path", told)) == {"action": "follow_path", **told}


def test_a_name_of_several_entities_yields_each_of_them():
    kin = ExecutedAction(
        "get_tail_entities", {"entity": "t", "relation": "r"}, None, ("m.1", "m.2"), ("Ann",) * 2
    )
    answers = united([run("Ann", actions=[kin], ids=(("m.1", "m.2"),))], {"t"})
    assert [(a.value, a.id, a.label) for a in answers] == [("Ann", "m.1", "Ann"), ("Ann", "m.2", "Ann")]


def test_what_no_observation_showed_carries_no_evidence():
    (answer,) = united([run("Meg Ryan", actions=[STARRED])], {"Big"})
    assert answer.model_dump(exclude_none=True) == {
        "value": "Meg Ryan",
        "kind": "literal",
        "support": "1/1",
        "unsupported": True,
        "evidence": {"triples": []},
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [("3", "count"), ("yes", "boolean"), ("1988-06-03", "date"), ("1988-06", "date"), ("1.5", "literal")],
)
def test_kinds_of_answers_that_no_observation_showed(value, kind):
    assert united([run(value)], {"Big"})[0].kind == kind


@pytest.mark.parametrize(
    ("id_", "kind", "datatype"),
    [
        (
            '"1988"^^<http://www.w3.org/2001/XMLSchema#gYear>',
            "date",
            "http://www.w3.org/2001/XMLSchema#gYear",
        ),
        (
            '"true"^^<http://www.w3.org/2001/XMLSchema#boolean>',
            "boolean",
            "http://www.w3.org/2001/XMLSchema#boolean",
        ),
        (
            '"7"^^<http://www.w3.org/2001/XMLSchema#integer>',
            "literal",
            "http://www.w3.org/2001/XMLSchema#integer",
        ),
        ('"Groß"@de', "literal", None),
        ('"plain"', "literal", None),
        ('"Weird Al" Yankovic', "entity", None),
        ("http://x/a", "entity", None),
    ],
)
def test_kinds_of_ids(id_, kind, datatype):
    (answer,) = united([run("x", actions=[tails("t", "r", id_)], ids=((id_,),))], {"t"})
    assert (answer.kind, answer.datatype) == (kind, datatype)


def test_statuses():
    supported = run("Tom Hanks", actions=[STARRED])
    guessed, empty = run("Meg Ryan"), run(status=Status.OUT_OF_TURNS)
    late = run(status=Status.TIMED_OUT)

    def status(*runs):
        return status_of(runs, united(runs, {"Big"}))

    assert status(supported, guessed, late) == "answered"
    assert status(guessed, late) == "unsupported"
    assert status(empty, empty) == "no_answer"
    assert status(empty, late) == "partial"
    assert status() == "partial"


def test_turns_are_told_with_their_actions_and_failures():
    failed = ExecutedAction("get_tail_relations", {"entity": "Bog"}, "KG_ENTITY_NOT_FOUND")
    told = record(run("Tom Hanks", actions=[failed, STARRED])).model_dump()
    assert told["status"] == "answered"
    assert [t["turn"] for t in told["trajectory"]] == [1, 2]
    assert told["trajectory"][0] == {
        "turn": 1,
        "thought": "a thought",
        "actions": [
            {"action": "get_tail_relations", "entity": "Bog", "code": "KG_ENTITY_NOT_FOUND"},
            {"action": "get_tail_entities", "entity": "Big", "relation": "starred"},
        ],
        "observations": ["<information>…</information>"],
        "elapsed_ms": 1.5,
    }
    assert told["trajectory"][1]["observations"] == []


def test_usage_counts_each_call_of_the_policy_with_its_whole_prompt():
    usage = usage_of([run("a", actions=[STARRED]), run("b")], kg_calls=1, elapsed_ms=12.3456)
    assert usage.model_dump() == {
        "llm_calls": 4,
        "prompt_tokens": 2 * (10 + 20),
        "generated_tokens": 2 * (4 + 3),
        "kg_calls": 2,
        "elapsed_ms": 12.346,
    }


def test_usage_counts_what_was_searched_beside_an_answer():
    searched = replace(run("a", actions=[STARRED]), search=Search(0.5, 1.0, 3, 100, 2))
    usage = usage_of([searched], kg_calls=1, elapsed_ms=1.0)
    assert (usage.llm_calls, usage.prompt_tokens, usage.kg_calls) == (2 + 3, 10 + 20 + 100, 1 + 1 + 2)
