"""Entities by reference: what a policy reads and writes for them, and what the graph is asked."""

from __future__ import annotations

import copy

import pytest

from kbqa.kg.actions import Action, DatedItem, ErrorCode, ErrorKind, Failure, Item, Success
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols import KgR1, PredictedAnswer
from kbqa.protocols.references import REFERENCES, References, referring
from kbqa.training.small_policy import train_tokenizer
from kbqa.trajectory import Question, Segment

BRIEF, FULL = KgR1("brief", entities="references"), KgR1("full", entities="references")


def asked(text: str = "who is the father of Ada ?", *topics: str) -> Question:
    return Question("q1", text, ("Byron",), topics or ("Ada",), "world")


def begin(question: Question | None = None, protocol: KgR1 = BRIEF):
    return protocol.begin(question or asked(), max_turns=5)


def query(dialogue, entity: str, relation: str = "r", name: str = "get_tail_entities"):
    call = f'{name}("{entity}", "{relation}")' if relation else f'{name}("{entity}")'
    reply = dialogue.reply(f"<think>t</think><kg-query>{call}</kg-query>")
    return reply.actions


def found(dialogue, *items: Item, total: int | None = None, entity: str = "e1") -> str:
    """What is read after a query that finds these."""
    query(dialogue, entity)
    count = len(items) if total is None else total
    dialogue.take([Success(items, total=count, truncated=count > len(items))])
    return text(dialogue.observation(3))


def text(segments) -> str:
    return "".join(segment.text for segment in segments)


def answers(dialogue, written: str) -> tuple[PredictedAnswer, ...]:
    return dialogue.reply(f"<think>t</think><answer>{written}</answer>").answers


@pytest.mark.parametrize(
    ("written", "topics", "shown"),
    [
        ("who is the father of Ada ?", ("Ada",), "who is the father of e1 ?"),
        ("Ada and ADA and Adam", ("Ada",), "e1 and e1 and Adam"),
        ("who knows john smith 's wife ?", ("john_smith",), "who knows e1 's wife ?"),
        ("did Ada marry King ?", ("King", "Ada"), "did e2 marry e1 ?"),
        # The longest name first, or the shorter one would tear it apart.
        ("is York in New York ?", ("York", "New York"), "is e1 in e2 ?"),
        # Nothing is known of these but an id, which the text does not hold.
        ("who is her father ?", ("m.0abc",), "who is her father ? e1"),
        ("who is her father , Ada ?", ("m.0x", "Ada", "m.0y"), "who is her father , e2 ? e1 e3"),
        ("is C++ (the language) old ?", ("C++ (the language)",), "is e1 old ?"),
    ],
)
def test_references_stand_in_a_question_for_its_topics(written, topics, shown):
    segments = referring(written, topics)
    assert text(segments) == shown
    assert all(segment.trusted == (segment.text.strip() in REFERENCES) for segment in segments)


def test_a_brief_prompt_holds_the_question_alone():
    assert text(begin().prompt()) == "Question who is the father of e1 ?\nAssistant"
    written_by_a_user = begin(asked("who is e1 of Ada ?")).prompt()
    assert [s.text for s in written_by_a_user if s.trusted] == ["Question ", "e1", "\nAssistant"]


def test_the_graph_is_asked_for_ids():
    dialogue = begin(asked("who ?", "m.0ada"))
    assert query(dialogue, "e1") == (Action("get_tail_entities", {"entity": "m.0ada", "relation": "r"}),)
    dialogue.take([Success((Item("m.0byron", "Byron"),), total=1)])
    assert query(dialogue, "e2", "", "get_head_relations") == (
        Action("get_head_relations", {"entity": "m.0byron"}),
    )


def test_results_are_references_in_the_order_in_which_they_are_shown():
    dialogue = begin()
    assert found(dialogue, Item("x", "X"), Item("y", "Y")) == "<information>e2, e3</information>"
    assert found(dialogue, Item("z", "Z"), Item("x", "X"), Item("Ada", "Ada")) == (
        "<information>e4, e2, e1</information>"
    )


def test_namesakes_have_a_reference_each():
    dialogue = begin()
    assert found(dialogue, Item("m.1", "Paris"), Item("m.2", "Paris")) == "<information>e2, e3</information>"
    assert answers(dialogue, "e3") == (PredictedAnswer("Paris", ("m.2",)),)
    assert answers(dialogue, "e2, e3") == (
        PredictedAnswer("Paris", ("m.1",)),
        PredictedAnswer("Paris", ("m.2",)),
    )


def test_dated_facts_show_their_times_behind_the_reference():
    dialogue = begin()
    shown = (DatedItem("1", "Cambodia", ("2008-06",)), DatedItem("2", "Iran", ("2006-05", "2006-07")))
    assert found(dialogue, *shown) == "<information>e2 [2008-06]; e3 [2006-05; 2006-07]</information>"
    query(dialogue, "e1")
    segments = dialogue.observation(3)
    assert [segment.text for segment in segments if not segment.trusted] == [
        " [2008-06]",
        " [2006-05; 2006-07]",
    ]


def test_an_answer_is_read_as_the_entity_and_what_is_no_reference_as_it_stands():
    dialogue = begin(asked("who ?", "m.0ada"))
    found(dialogue, Item("m.0byron", "Byron, Lord"))
    assert answers(dialogue, " e2 ,e1\n2008-06, e2, e9") == (
        PredictedAnswer("Byron, Lord", ("m.0byron",)),
        PredictedAnswer("m.0ada", ("m.0ada",)),
        PredictedAnswer("2008-06"),
        PredictedAnswer("e9"),
    )


@pytest.mark.parametrize("written", ["e9", "Ada", "e0", "", "unknown"])
def test_what_is_no_reference_is_not_found_whatever_the_graph_has(written):
    dialogue = begin()
    (action,) = query(dialogue, written)
    assert action.arguments["entity"] == f"unknown reference {written}"
    message = f'Entity "{action.arguments["entity"]}" not found in KG'
    dialogue.take([Failure(ErrorCode.ENTITY_NOT_FOUND, ErrorKind.ENTITY_NOT_IN_KG, message)])
    segments = dialogue.observation(3)
    assert text(segments) == f'<information><error>Entity "{written}" not found in KG</error></information>'
    assert [segment.trusted for segment in segments] == [True, False, False, False, True]


def test_an_error_about_an_entity_calls_it_by_its_reference():
    dialogue = begin()
    query(dialogue, "e1", "parent")
    message = 'No tail entities found for relation "parent" with head "Ada" in knowledge graph'
    dialogue.take([Failure(ErrorCode.NO_RESULTS, ErrorKind.NO_ENTITIES_FOUND, message)])
    segments = dialogue.observation(3)
    assert text(segments) == f"<information><error>{message.replace('Ada', 'e1')}</error></information>"
    assert Segment("e1") in segments


def test_there_are_so_many_references_and_no_more():
    dialogue = begin()
    many = [Item(f"m.{number}", f"name {number}") for number in range(len(REFERENCES) + 3)]
    shown = found(dialogue, *many)
    assert shown == f"<information>{', '.join(REFERENCES[1:])}, ... ({len(many)} in all)</information>"
    assert found(begin(), many[0], total=70) == "<information>e2, ... (70 in all)</information>"


def test_relations_are_listed_by_name():
    dialogue = begin()
    query(dialogue, "e1", "", "get_tail_relations")
    dialogue.take([Success((Item("parent", "parent"), Item("wife", "wife")), total=2)])
    assert text(dialogue.observation(3)) == "<information>parent, wife</information>"
    assert found(dialogue, Item("x", "X")) == "<information>e2</information>"  # a relation takes no reference


def test_for_a_model_that_knows_names_they_stand_behind_the_references():
    dialogue = begin(protocol=FULL)
    prompt = text(dialogue.prompt())
    assert "of e1 ?\nInitial entities: e1 (Ada)\nAssistant:" in prompt
    assert "Write the reference of an entity" in prompt
    assert found(dialogue, Item("x", "X")) == (
        '<information>Tail entities for relation "r" with head "e1": e2 (X)</information>'
    )
    for protocol in (BRIEF, FULL):
        chat = begin(protocol=protocol)
        assert (
            chat.opening(native_tools=False).user
            == "Question: who is the father of e1 ?\nInitial entities: e1 (Ada)"
        )
        assert found(chat, Item("x", "X")).endswith('"e1": e2 (X)</information>')


def test_a_fork_has_references_of_its_own():
    references = References(["Ada"])
    twin = copy.deepcopy(references)
    twin.add([Item("x", "X")])
    references.add([Item("y", "Y")])
    assert (references.entity("e2"), twin.entity("e2")) == (Item("y", "Y"), Item("x", "X"))
    assert references.of("x") is None


def test_a_topic_is_called_by_its_label_once_a_result_has_told_it():
    references = References(["m.0ada"])
    references.add([Item("m.0ada", "Ada")])
    assert references.entity("e1") == Item("m.0ada", "Ada")


def test_a_reference_is_one_token_and_text_cannot_forge_it():
    codec = TokenizerCodec(train_tokenizer(["who is the father of ada ?", "type1"], BRIEF.tags, 400))
    assert all(len(codec.encode([Segment(reference)])) == 1 for reference in REFERENCES)
    [second] = codec.encode([Segment("e2")])
    assert second in codec.encode([Segment('get_tail_entities("e2", "r")')])
    assert second in codec.encode([Segment("<answer>e1, e2</answer>")])
    assert second not in codec.encode([Segment("the2 e21 e2x")])
    assert second not in codec.encode([Segment("e2", trusted=False)])
    assert set(BRIEF.tags) - set(KgR1("brief").tags) == set(REFERENCES)
