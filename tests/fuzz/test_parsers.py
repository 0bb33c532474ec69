"""No text breaks a parser: random ones in every run, and those that once did."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.parsers import TARGETS, TURN_END

# Texts that broke a parser, with what they broke.
FOUND = {
    "a query of half a character": (
        "knowcoder_a1",
        r'<tool_call>{"name": "ExecuteSPARQL", "arguments": '
        r'{"sparql": "\ud800"}}</tool_call>',
    ),
    "an answer of half a character": ("knowcoder_a1", r'<answer>\boxed{["\ud800"]}</answer>'),
    "an entity of half a character": ("kg_r1", r'<kg-query>get_tail_relations("\ud800")</kg-query>'),
    "a call that is a long number": ("knowcoder_a1", f"<tool_call>{'9' * 5000}</tool_call>"),
    "an answer that is a long number": ("knowcoder_a1", rf"<answer>\boxed{{[{'9' * 5000}]}}</answer>"),
    "an argument that is a long number": ("kg_r1", f"<kg-query>get_tail_relations({'9' * 5000})</kg-query>"),
    "arguments nested deep": ("kg_r1", f"<kg-query>get_tail_relations({'[' * 100_000})</kg-query>"),
    "an expression that grows by the graph's names": (
        "kbqa_r1",
        f"<action>Order [ MAX | film.film | {'(JOIN r ' * 99}r{')' * 99} ]</action>",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_broke_a_parser_does_so_no_more(name):
    target, text = FOUND[name]
    TARGETS[target].check(text)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_text_breaks(name, data):
    target = TARGETS[name]
    words = st.sampled_from(target.words) | st.text(max_size=8)
    target.check(data.draw(st.lists(words, max_size=30).map("".join)))


def test_bytes_stand_for_letters_and_words():
    target = TARGETS["kg_r1"]
    assert target.text(b"hi" + bytes([128])) == "hi" + target.words[0]
    assert TURN_END in target.text(bytes(range(128, 256)))
