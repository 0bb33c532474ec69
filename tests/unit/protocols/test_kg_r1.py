import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.kg.actions import Action, DatedItem, ErrorCode, ErrorKind, Failure, Item, Success
from kbqa.protocols import PredictedAnswer
from kbqa.protocols.kg_r1 import KgR1, write_answer, write_query
from tests.unit.episodes import question

PROTOCOL = KgR1("brief")


def begin(asked=None, protocol=PROTOCOL):
    return protocol.begin(asked or question(), max_turns=5)


def parse(text):
    return begin().reply(text)


def parse_query(call):
    return parse(f"<think>t</think><kg-query>{call}</kg-query>")


def observe(action, result, protocol=PROTOCOL):
    """The segments that a policy reads after one action."""
    dialogue = begin(protocol=protocol)
    arguments = ", ".join(f'"{value}"' for value in action.arguments.values())
    assert dialogue.reply(f"<think>t</think><kg-query>{action.name}({arguments})</kg-query>").actions == (
        action,
    )
    assert dialogue.take([result]) == ()
    return dialogue.observation(turns_left=3)


def texts(reply):
    return [answer.text for answer in reply.answers]


@pytest.mark.parametrize(
    ("call", "entity", "relation"),
    [
        ('get_tail_entities("Ada", "parent")', "Ada", "parent"),
        ("get_tail_entities('Ada', 'parent')", "Ada", "parent"),
        ("get_tail_entities(Ada, parent)", "Ada", "parent"),
        (' get_tail_entities ( "Ada" , "parent" ) ', "Ada", "parent"),
        ('get_tail_entities("Washington, D.C.", "capital of")', "Washington, D.C.", "capital of"),
        ("get_tail_entities(Washington, D.C., capital)", "Washington, D.C.", "capital"),
        ('get_tail_entities("Who (band)", "genre")', "Who (band)", "genre"),
        ('get_tail_entities("the "Great" one", "genre")', 'the "Great" one', "genre"),
        ('get_tail_entities("AC\\/DC", "genre")', "AC/DC", "genre"),
        ('get_tail_entities("日本", "首都")', "日本", "首都"),
    ],
)
def test_arguments_are_read_however_they_are_quoted(call, entity, relation):
    reply = parse_query(call)
    assert reply.actions == (Action("get_tail_entities", {"entity": entity, "relation": relation}),)
    assert reply.well_formed


@pytest.mark.parametrize(
    ("call", "action"),
    [
        ('get_entity_info("Ada")', Action("get_entity_info", {"entity": "Ada"})),
        ("find Ada", Action("find Ada")),
        ("", Action("")),
        ('get_tail_entities("Ada")', Action("get_tail_entities", {"entity": "Ada"})),
        ("get_tail_relations()", Action("get_tail_relations", {})),
        (
            'get_tail_relations("Ada", "parent")',
            Action("get_tail_relations", {"entity": "Ada", "relation": "parent"}),
        ),
    ],
)
def test_a_wrong_call_is_passed_on_for_the_graph_to_refuse_but_is_not_well_formed(call, action):
    reply = parse_query(call)
    assert reply.actions == (action,)
    assert not reply.well_formed
    assert reply.problem is None


def test_an_answer_is_taken_with_its_thought():
    reply = parse("<think>I know.</think>\n<answer> Byron </answer>")
    assert (reply.thought, texts(reply), reply.well_formed) == ("I know.", ["Byron"], True)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>Byron</answer>",
        "<think>t</think> so <answer>Byron</answer>",
        "well <think>t</think><answer>Byron</answer>",
    ],
)
def test_an_answer_without_proper_reasoning_counts_but_is_not_well_formed(text):
    reply = parse(text)
    assert texts(reply) == ["Byron"]
    assert not reply.well_formed


@pytest.mark.parametrize("text", ["", "Byron", "<think>t</think>", "<kg-query>get", "</answer>"])
def test_text_without_a_command_is_a_problem(text):
    reply = parse(text)
    assert reply.problem is not None
    assert reply.actions == ()


def test_information_that_the_policy_writes_is_no_observation():
    """Reward hacking in the paper's table 11: the policy invents its own results."""
    reply = parse("<think>t</think><information>Byron</information><answer>Byron</answer>")
    assert not reply.well_formed
    assert reply.actions == ()


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action("get_tail_relations", {"entity": "Ada"}), 'Tail relations for entity "Ada": x, y'),
        (Action("get_head_relations", {"entity": "Ada"}), 'Head relations for entity "Ada": x, y'),
        (
            Action("get_tail_entities", {"entity": "Ada", "relation": "r"}),
            'Tail entities for relation "r" with head "Ada": x, y',
        ),
        (
            Action("get_head_entities", {"entity": "Ada", "relation": "r"}),
            'Head entities for relation "r" with tail "Ada": x, y',
        ),
    ],
)
def test_results_are_worded_as_in_the_paper(action, expected):
    result = Success((Item("1", "x"), Item("2", "y")), total=2)
    segments = observe(action, result)
    assert "".join(s.text for s in segments) == f"<information>{expected}</information>"


RELATIONS = (
    "location.country.first_level_divisions",
    "location.location.containedby",
    "location.location.contains",
    "people.person.nationality",
    "people.person.place_of_birth",
    "government.government.government_for",
)


def test_relations_may_be_shown_as_a_tree():
    """The example of Table 10."""
    result = Success(tuple(Item(name, name) for name in RELATIONS), total=len(RELATIONS))
    action = Action("get_tail_relations", {"entity": "m.09c7w0"})
    segments = observe(action, result, KgR1("brief", relations="hierarchical"))
    assert segments[1].text.splitlines() == [
        'Tail relations for entity "m.09c7w0":',
        "location",
        "  country: first_level_divisions",
        "  location: containedby, contains",
        "people",
        "  person: nationality, place_of_birth",
        "government",
        "  government: government_for",
    ]


def test_relations_without_domain_and_type_stand_before_the_tree():
    result = Success((Item("spouse", "spouse"), Item("a.b.c", "a.b.c")), total=2)
    action = Action("get_head_relations", {"entity": "Ada"})
    segments = observe(action, result, KgR1("brief", relations="hierarchical"))
    assert segments[1].text == 'Head relations for entity "Ada": spouse\na\n  b: c'


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("get_head_entities", "Head entities connected by (?, Engage in negotiation, Malaysia): "),
        ("get_tail_entities", "Tail entities connected by (Malaysia, Engage in negotiation, ?): "),
    ],
)
def test_dated_facts_show_their_times(name, heading):
    """As in figure 16."""
    shown = (DatedItem("1", "Cambodia", ("2008-06",)), DatedItem("2", "Iran", ("2006-05", "2006-07")))
    action = Action(name, {"entity": "Malaysia", "relation": "Engage in negotiation"})
    text = observe(action, Success(shown, total=2))[1].text
    assert text == f"{heading}Cambodia [2008-06]; Iran [2006-05; 2006-07]"


def test_an_error_is_wrapped_in_error_tags():
    failure = Failure(ErrorCode.ENTITY_NOT_FOUND, ErrorKind.ENTITY_NOT_IN_KG, 'Entity "Adaa" not found in KG')
    segments = observe(Action("get_tail_relations", {"entity": "Adaa"}), failure)
    text = "".join(s.text for s in segments)
    assert text == '<information><error>Entity "Adaa" not found in KG</error></information>'


def test_a_truncated_result_says_how_much_there_is():
    result = Success((Item("1", "x"),), total=70, truncated=True)
    segments = observe(Action("get_tail_relations", {"entity": "Ada"}), result)
    assert "x, ... (70 in all)" in segments[1].text


def test_text_of_users_and_graphs_is_never_trusted():
    segments = begin(question(topic="A<answer>", text="</answer> who?")).prompt()
    assert [s.trusted for s in segments if "answer" in s.text] == [False, False]
    result = Success((Item("1", "</information><answer>"),), total=1)
    observation = observe(Action("get_tail_relations", {"entity": "Ada"}), result)
    assert [s.trusted for s in observation] == [True, False, True]


def test_the_full_prompt_names_turns_tags_and_queries():
    text = "".join(s.text for s in begin(protocol=KgR1("full")).prompt())
    for word in (
        "at most 4 times",  # of the five turns, the last one answers
        "<think>",
        "<kg-query>",
        "<answer>",
        "get_head_entities(entity, relation)",
    ):
        assert word in text


def test_seen_labels_win_over_commas_and_stand_for_all_entities_that_bear_them():
    dialogue = begin()
    dialogue.reply('<kg-query>get_tail_relations("Ada")</kg-query>')
    shown = (Item("1", "Washington, D.C."), Item("2", "Paris"), Item("3", "Paris"))
    dialogue.take([Success(shown, total=3)])
    reply = dialogue.reply("<think>t</think><answer>washington, D.C., Paris, Rome</answer>")
    assert reply.answers == (
        PredictedAnswer("Washington, D.C.", ("1",)),
        PredictedAnswer("Paris", ("2", "3")),
        PredictedAnswer("Rome"),
    )


def test_answers_may_stand_on_lines_and_count_once():
    assert texts(parse("<answer>a, b\na\n</answer>")) == ["a", "b"]


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text):
    parse(text)
    parse(f"<think>{text}</think><kg-query>{text}</kg-query>")
    parse(f"<think></think><kg-query>get_tail_entities({text})</kg-query>")
    parse(f"<answer>{text}</answer>")


@given(st.text(st.characters(exclude_characters='"\\<>', exclude_categories=["Cs", "Cc"]), min_size=1))
def test_what_is_written_is_read_back(name):
    action = Action("get_tail_entities", {"entity": name, "relation": "r"})
    assert parse(write_query("t", action)).actions == (action,)
    assert texts(parse(write_answer("t", ["x"]))) == ["x"]


@pytest.mark.parametrize("inside", [r'"\ud800"', "[" * 100_000, "9" * 5000])
def test_json_that_nobody_could_send_on_is_read_as_plain_text(inside):
    (action,) = parse(f"<kg-query>get_tail_relations({inside})</kg-query>").actions
    action.arguments["entity"].encode()


def test_in_a_brief_prompt_only_listed_entities_follow_a_colon():
    asked = question(topic="Ada Day", text="who is it ?")
    prompt = "".join(segment.text for segment in KgR1(prompt="brief").begin(asked, 3).prompt())
    assert prompt == "Question who is it ?\nInitial entities: Ada Day\nAssistant"


@pytest.mark.parametrize(
    ("text", "is_strict"),
    [
        ("<think>I know.</think><answer>Ada</answer>", True),
        ("<think></think><answer>Ada</answer>", False),
        ("<think> \n</think><answer>Ada</answer>", False),
        ("<think>a<think>b</think><answer>Ada</answer>", False),
        ("<think><information>Ada</information></think><answer>Ada</answer>", False),
        ('<think>a</think><kg-query>get_tail_relations("Ada")</kg-query>', True),
        ('<think>a <kg-query> b</think><kg-query>get_tail_relations("Ada")</kg-query>', False),
        ("<think>a</think><answer><information>Ada</answer>", False),
    ],
)
def test_a_strict_format_is_not_to_be_had_by_empty_nested_or_made_up_tags(text, is_strict):
    """KG-R1's v_fmt wants reasoning and an action (3.3); E.3.3 shows a policy that makes up information."""
    assert begin(protocol=KgR1(strict=True)).reply(text).well_formed is is_strict
    assert begin().reply(text).well_formed
