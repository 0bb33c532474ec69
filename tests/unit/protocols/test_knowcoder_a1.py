"""KnowCoder-A1's dialect."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.kg.actions import Action, ErrorCode, ErrorKind, Failure, ScoredItem, Success
from kbqa.protocols import KnowCoderA1, PredictedAnswer
from kbqa.protocols.knowcoder_a1 import write_answer, write_call
from tests.unit.episodes import question

ROWS = tuple(
    {"actor": {"type": "uri", "value": f"http://rdf.freebase.com/ns/{id_}", "id": id_, "label": label}}
    for id_, label in (("m.0brenda", "Brenda Song"), ("m.0cvt", "m.0cvt"))
)
QUERY = "SELECT ?actor WHERE { VALUES ?e {ns:m.07g8r3} }"


def begin(prompt="brief"):
    return KnowCoderA1(prompt).begin(question(topic="m.07g8r3"), 10)


def call(name, **arguments):
    return begin().reply(write_call("t", name, arguments))


def observed(tool, result, **arguments):
    dialogue = begin()
    assert dialogue.reply(write_call("t", tool, arguments)).actions
    assert dialogue.take([result]) == ()
    return "".join(segment.text for segment in dialogue.observation(turns_left=3))


@pytest.mark.parametrize(
    ("tool", "arguments", "action"),
    [
        ("SearchTypes", {"query": "college"}, Action("search_types", {"query": "college"})),
        (
            "SearchGraphPatterns",
            {"sparql": QUERY, "semantic": "actor"},
            Action("search_graph_patterns", {"sparql": QUERY, "semantic": "actor"}),
        ),
        ("ExecuteSPARQL", {"sparql": QUERY}, Action("execute_sparql", {"query": QUERY})),
    ],
)
def test_a_tool_call_is_an_action(tool, arguments, action):
    reply = call(tool, **arguments)
    assert reply.actions == (action,)
    assert reply.well_formed
    assert reply.thought == "t"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Brenda", "no <tool_call> or <answer>"),
        ("<think>t</think><tool_call>SearchTypes(query='x')</tool_call>", "one JSON object"),
        ("<think>t</think><tool_call>[1]</tool_call>", "no such tool; the tools are SearchTypes"),
        ('<think>t</think><tool_call>{"name": "Find"}</tool_call>', "no such tool"),
        ('<think>t</think><tool_call>{"name": "ExecuteSPARQL"}</tool_call>', "Error! SPARQL is required."),
        (write_call("t", "ExecuteSPARQL", {"sparql": ""}), "Error! SPARQL is required."),
        (write_call("t", "SearchGraphPatterns", {"sparql": "x"}), "Error! SPARQL must contain {."),
        (
            write_call("t", "SearchGraphPatterns", {"sparql": "ASK { ?e ns:film.film.actor ?x }"}),
            "Error! SPARQL must start with: SELECT ?e WHERE. "
            "You should use `ExecuteSPARQL` to execute SPARQL statements.",
        ),
        (write_call("t", "SearchTypes", {"query": "x", "k": "3"}), "takes query and nothing else"),
    ],
)
def test_a_near_miss_is_told(text, problem):
    dialogue = begin()
    reply = dialogue.reply(text)
    assert problem in reply.problem
    assert not reply.fatal
    told = "".join(segment.text for segment in dialogue.complaint(reply.problem, 3))
    assert told.startswith("<tool_response>Error! ")


@pytest.mark.parametrize(
    ("boxed", "answers"),
    [
        ('["Brenda Song"]', ["Brenda Song"]),
        ("['A', 'B', 'A']", ["A", "B"]),
        ("['D\\'Arcy, Jr.', \"x\"]", ["D'Arcy, Jr.", "x"]),
        ("[A, B]", ["A", "B"]),
        ("1999", ["1999"]),
        ("[]", []),
        ("", []),
    ],
)
def test_answers_are_the_list_in_the_box(boxed, answers):
    reply = begin().reply(f"<think>t</think><answer> the answer is \\boxed{{{boxed}}} </answer>")
    assert [answer.text for answer in reply.answers] == answers
    assert reply.well_formed


BOXED = '<answer> the answer is \\boxed{["Brenda Song"]} </answer>'
SEARCH = '<tool_call>{"name": "SearchTypes", "arguments": {"query": "college"}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "is_strict", "otherwise"),
    [
        (f"<think>t</think>{SEARCH}", True, True),
        (f"<think></think>{SEARCH}", False, True),
        (f"<think> \n</think>{BOXED}", False, True),
        (f"<think>t<think>u</think>{BOXED}", False, False),
        (f"<think><tool_response>[]</tool_response></think>{BOXED}", False, False),
    ],
)
def test_a_format_is_not_to_be_had_by_nested_or_made_up_tags_nor_strictly_by_empty_ones(
    text, is_strict, otherwise
):
    """Appendix E: "You must first conduct reasoning inside <think>"."""
    for strict, expected in ((True, is_strict), (False, otherwise)):
        reply = KnowCoderA1(strict=strict).begin(question(), 10).reply(text)
        assert reply.problem is None
        assert reply.well_formed is expected


def test_an_answer_without_a_box_holds_no_prediction():
    reply = begin().reply("<think>t</think><answer> Brenda Song </answer>")
    assert reply.answers == ()
    assert not reply.well_formed


def test_results_are_shown_as_the_papers_cases_show_them():
    assert observed("ExecuteSPARQL", Success(ROWS, 2), sparql=QUERY) == (
        '<tool_response>["Brenda Song", "ns:m.0cvt"]</tool_response>'
    )
    assert observed("ExecuteSPARQL", Success((), 0), sparql=QUERY) == "<tool_response>[]</tool_response>"
    types = Success((ScoredItem("education.university", "University", 0.9),), 1)
    assert "education.university" in observed("SearchTypes", types, query="college")
    relations = [
        {"id": "film.film_character.portrayed_in_films", "label": ""},
        {"id": "film.performance.actor", "label": ""},
    ]
    example = {"id": "m.0brenda", "label": "Brenda Song"}
    found = (
        {"direction": "out", "relations": relations, "example": example, "score": 0.9},
        {"direction": "in", "relations": relations[:1], "example": None, "score": 0.1},
    )
    patterns = Success(found, 2, details={"variable": "?e"})
    assert observed("SearchGraphPatterns", patterns, sparql=QUERY) == (
        "<tool_response>[(?e, film.film_character.portrayed_in_films -> film.performance.actor, "
        '"Brenda Song"), (..., film.film_character.portrayed_in_films, ?e)]</tool_response>'
    )


@pytest.mark.parametrize(
    ("kind", "details", "text"),
    [
        (ErrorKind.QUERY_TIMEOUT, {}, "Error: timed out query."),
        (ErrorKind.QUERY_TIMEOUT, {"timeout_s": 300.0}, "Error: timed out after 300 seconds"),
        (
            ErrorKind.QUERY_REFUSED,
            {"reason": "unused_variable"},
            "Error! SPARQL must contain at least two ?e.",
        ),
        (ErrorKind.QUERY_SYNTAX, {}, "Error: what happened"),
    ],
)
def test_errors_are_interactive_kbqas_where_it_has_some(kind, details, text):
    failure = Failure(ErrorCode.FORMAT_ERROR, kind, "what happened", details)
    assert observed("ExecuteSPARQL", failure, sparql=QUERY) == f"<tool_response>{text}</tool_response>"


def test_an_answer_stands_for_the_entities_that_a_query_found():
    dialogue = begin()
    dialogue.reply(write_call("t", "ExecuteSPARQL", {"sparql": QUERY}))
    dialogue.take([Success(ROWS, 2)])
    assert dialogue.reply(write_answer("t", ["brenda song"])).answers == (
        PredictedAnswer("brenda song", ("m.0brenda",)),
    )


def row(name, id_):
    return {name: {"type": "uri", "value": f"http://rdf.freebase.com/ns/{id_}", "id": id_, "label": id_}}


def after(*results):
    """An episode whose queries found these."""
    dialogue = begin()
    for items in results:
        dialogue.reply(write_call("t", "ExecuteSPARQL", {"sparql": QUERY}))
        dialogue.take([Success(tuple(items), len(items))])
    return dialogue


def test_a_variable_in_the_box_stands_for_all_that_the_last_query_with_it_found():
    found = [[row("x", "m.01"), row("x", "m.02")], [row("y", "m.03")], []]
    by_reference = after(*found).reply(write_answer("t", ["?x"]))
    assert by_reference.answers == (PredictedAnswer("m.01", ("m.01",)), PredictedAnswer("m.02", ("m.02",)))
    assert by_reference.well_formed
    assert after(*found).reply(write_answer("t", ["?z"])).answers == ()
    assert after(*found, [row("x", "m.04")]).reply(write_answer("t", ["$x"])).answers == (
        PredictedAnswer("m.04", ("m.04",)),
    )


def test_two_entities_of_one_name_are_one_answer_by_reference():
    twins = [{"x": {**row("x", id_)["x"], "label": "Twin"}} for id_ in ("m.01", "m.02")]
    assert after(twins).reply(write_answer("t", ["?x"])).answers == (
        PredictedAnswer("Twin", ("m.01", "m.02")),
    )


def test_the_full_prompt_holds_signatures_and_placeholders():
    text = "".join(segment.text for segment in begin("full").prompt())
    between = text[text.index("<tools>") + 7 : text.index("</tools>")]
    names = [json.loads(line)["function"]["name"] for line in between.strip().splitlines()]
    assert names == ["SearchGraphPatterns", "ExecuteSPARQL", "SearchTypes"]
    assert text.endswith("Question: who ?\nTopic Entities: m.07g8r3(ns:m.07g8r3)\nAssistant:")


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text):
    begin().reply(text)
    begin().reply(f"<think>{text}</think><tool_call>{text}</tool_call>")
    begin().reply(f"<answer>\\boxed{{{text}}}</answer>")


def test_answers_by_reference_are_a_switch():
    """The paper's answers are lists: with the switch off, no prompt offers a variable, and none is read."""
    question_ = question(topic="m.07g8r3")
    for protocol in (KnowCoderA1("full"), KnowCoderA1("full", by_reference=False)):
        dialogue = protocol.begin(question_, 10)
        dialogue.reply(write_call("t", "ExecuteSPARQL", {"sparql": QUERY}))
        row = {"x": {"type": "uri", "value": "m.01", "id": "m.01", "label": "Brenda"}}
        dialogue.take([Success((row,), 1)])
        openings = [dialogue.opening(native_tools=native).system for native in (True, False)]
        prompts = ["".join(segment.text for segment in dialogue.prompt()), *openings]
        offered = ["\\boxed{?x}" in prompt for prompt in prompts]
        assert offered == [protocol.by_reference] * 3
        (answer,) = dialogue.reply(write_answer("t", ["?x"])).answers
        assert answer.text == ("Brenda" if protocol.by_reference else "?x")
