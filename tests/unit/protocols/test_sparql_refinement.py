"""Learning-to-Refine's dialect."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.environment import Budget, Episode
from kbqa.kg.actions import Action, ErrorCode, ErrorKind, Failure, Success
from kbqa.policies.base import Completion, FinishReason
from kbqa.protocols import PredictedAnswer, SparqlRefinement
from kbqa.protocols.sparql_refinement import write_answer, write_query
from kbqa.protocols.sparql_terms import entity_term
from kbqa.trajectory import Segment, Status
from tests.unit.episodes import question
from tests.unit.policies_fixtures import make_codec

ROWS = (
    {"x": {"type": "uri", "value": "http://www.wikidata.org/entity/Q38", "id": "Q38", "label": "Italy"}},
    {"x": {"type": "literal", "value": "1999"}},
)


def begin(max_turns=11):
    return SparqlRefinement("brief").begin(question(), max_turns)


def observed(result):
    dialogue = begin()
    dialogue.reply(write_query("t", "ASK {}"))
    assert dialogue.take([result]) == ()
    return "".join(segment.text for segment in dialogue.observation(turns_left=3))


def test_a_query_and_an_answer_are_read():
    reply = begin().reply("<think> first </think>\n<query> SELECT ?x {} </query>")
    assert reply.thought == "first"
    assert reply.well_formed
    assert reply.actions == (Action("execute_sparql", {"query": "SELECT ?x {}"}),)
    assert begin().reply("<think>t</think><answer> Italy </answer>").answers == (PredictedAnswer("Italy"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<query>ASK {}</query>",
        "<think>t</think>",
        "<think>t</think> so <query>ASK {}</query>",
        "<think>t</think><query>ASK {}</query><answer>x</answer>",
        "<think>t</think><query_result>forged</query_result><answer>x</answer>",
        "<think>t<answer>a</answer></think><answer>x</answer>",
        "<think>t</think><query>ASK {}</answer>",
    ],
)
def test_malformed_output_is_fatal(text):
    reply = begin().reply(text)
    assert reply.fatal
    assert not reply.well_formed
    assert reply.actions == ()
    assert reply.answers is None


def test_malformed_output_ends_the_episode():
    codec = make_codec()
    episode = Episode(question(), SparqlRefinement("brief"), codec, Budget(11, 400, 80, 40))
    ids = codec.encode([Segment("Italy")])
    episode.act(Completion(tuple(ids), (-0.5,) * len(ids), FinishReason.STOP, "v000001-aaaaaaaa"))
    assert episode.trajectory().status is Status.UNPARSABLE


def test_rows_are_shown_with_labels_and_terms():
    assert observed(Success(ROWS, 2)) == "<query_result>Italy (wd:Q38)\n1999</query_result>"
    assert observed(Success((), 0)) == "<query_result>No results.</query_result>"
    # The greatest of nothing is a row without a value.
    assert observed(Success(({},), 1)) == "<query_result>No results.</query_result>"
    assert observed(Success((), 1, details={"boolean": True})) == "<query_result>true</query_result>"


def test_a_long_result_says_how_many_rows_there_are():
    assert observed(Success(ROWS * 15, 30)).endswith("1999\n... (30 rows in all)</query_result>")


def test_an_error_is_told():
    failure = Failure(ErrorCode.SERVER_ERROR, ErrorKind.QUERY_TIMEOUT, "the query was stopped after 3 s")
    assert observed(failure) == "<query_result>error: the query was stopped after 3 s</query_result>"


def test_an_answer_stands_for_the_entities_that_a_result_showed():
    dialogue = begin()
    dialogue.reply(write_query("t", "ASK {}"))
    dialogue.take([Success(ROWS, 2)])
    assert dialogue.reply(write_answer("t", "italy")).answers == (PredictedAnswer("italy", ("Q38",)),)


def test_the_full_prompt_names_the_queries_and_the_terms_of_entities():
    text = "".join(s.text for s in SparqlRefinement().begin(question(topic="Q42"), 11).prompt())
    assert "At most 10 queries" in text
    assert text.endswith("Entities: Q42 (wd:Q42)\n")


@pytest.mark.parametrize(
    ("id_", "term"),
    [
        ("m.0abc", "ns:m.0abc"),
        ("Q42", "wd:Q42"),
        ("L7-F1", "wd:L7-F1"),
        ("http://example.org/x", "<http://example.org/x>"),
        ("Tom Hanks", "<urn:kbqa:e:Tom%20Hanks>"),
        ("Matrix: Reloaded", "<urn:kbqa:e:Matrix%3A%20Reloaded>"),
        ('"1999"', '"1999"'),
    ],
)
def test_entities_as_terms(id_, term):
    assert entity_term(id_) == term


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text):
    begin().reply(text)
    begin().reply(f"<think>{text}</think><query>{text}</query>")


def test_the_full_prompt_shows_several_refinements():
    text = "".join(segment.text for segment in SparqlRefinement().begin(question(), 11).prompt())
    assert "At most 10 queries" in text
    examples = text.split("\nExample\n")[1:]
    assert len(examples) == 3
    for example in examples:
        written = re.findall(
            r"<think>.*?</think>\n<(?:query|answer)>.*?</(?:query|answer)>", example, re.DOTALL
        )
        dialogue = begin()
        assert [dialogue.reply(turn).answers is None for turn in written] == [True, True, False]


def test_a_chat_model_reads_the_prompt_of_a_policy_in_training():
    """The paper's B3 has the identical prompt (section 4.4)."""
    dialogue = SparqlRefinement().begin(question(), 11)
    opening = dialogue.opening(native_tools=False)
    assert (opening.system, opening.user) == ("", "".join(segment.text for segment in dialogue.prompt()))


def test_a_reactive_agent_writes_no_thought():
    """The ablation of section 5.2."""
    dialogue = SparqlRefinement(reasons=False).begin(question(), 11)
    assert "think" not in "".join(segment.text for segment in dialogue.prompt())
    assert dialogue.reply(write_query(None, "ASK {}")).actions == (
        Action("execute_sparql", {"query": "ASK {}"}),
    )
    assert dialogue.reply(write_answer(None, "Italy")).answers == (PredictedAnswer("Italy"),)
    refused = dialogue.reply(write_answer("t", "Italy"))
    assert (refused.fatal, refused.problem) == (True, "not one <query> or <answer>")
