"""The dialect of choices, over graphs drawn by hand."""

from __future__ import annotations

import pytest

from kbqa.environment import Budget, ChatEpisode, Episode
from kbqa.kg.actions import ErrorCode, ErrorKind, Failure
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols.chooser import MOST_OPTIONS, ChoosingProtocol
from kbqa.rollouts import Agent, linear_rollout
from kbqa.trajectory import Question, Status
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

TRIPLES = [
    ("Heat", "film.film.directed_by", "Mann"),
    ("Ali", "film.film.directed_by", "Mann"),
    ("Heat", "film.film.starring", "Pacino"),
    ("Ali", "film.film.starring", "Smith"),
    ("Mann", "people.person.placeOfBirth", "Chicago"),
]
BUDGET = Budget(max_turns=4, max_tokens=4096, max_turn_tokens=16, max_observation_tokens=2048)


@pytest.fixture(scope="module")
def tools():
    return LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples(TRIPLES)}))


def question(text="who directed Heat ?", *topics):
    return Question("q", text, (), topics or ("Heat",), "toy")


def begun(tools, asked, protocol=None, turns=4):
    dialogue = (protocol or ChoosingProtocol()).begin(asked, turns)
    dialogue.take(tools.execute("toy", dialogue.first_look()))
    return dialogue


def said(segments):
    return "".join(segment.text for segment in segments)


def turn(tools, dialogue, text, left=3):
    reply = dialogue.reply(text)
    assert reply.problem is None, reply.problem
    dialogue.take(tools.execute("toy", reply.actions))
    return said(dialogue.observation(left))


def test_the_prompt_shows_the_question_without_its_topic_and_what_can_be_followed(tools):
    dialogue = begun(tools, question())
    assert said(dialogue.prompt()) == (
        "<question>who directed <topic> ?</question><options><1> directed by<2> starring</options>"
    )
    # Only the tags are trusted: a name or relation that looks like one is text.
    assert [s.text for s in dialogue.prompt() if not s.trusted] == [
        "who directed ",
        " ?",
        " directed by",
        " starring",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("who directed HEAT?", "who directed <topic>?"),
        ("is Heat hotter than Heat 2 ?", "is <topic> hotter than Heat 2 ?"),
        ("who directed Heathers ?", "who directed Heathers ?"),
    ],
)
def test_the_topic_is_found_as_a_word(tools, text, shown):
    assert f"<question>{shown}</question>" in said(begun(tools, question(text)).prompt())


def test_a_choice_follows_its_relation_from_the_whole_set(tools):
    dialogue = begun(tools, question())
    # Mann is the tail of what he directed; the path comes back to Heat, which is left out.
    assert (
        turn(tools, dialogue, "<1>")
        == "<options><0> answer<1><inverse> directed by<2> place of birth</options>"
    )
    assert turn(tools, dialogue, "<1>") == "<options><0> answer<1> directed by<2> starring</options>"
    reply = dialogue.reply("<0>")
    assert [(answer.text, answer.ids) for answer in reply.answers] == [("Ali", ("Ali",))]


def test_actions_say_the_whole_path(tools):
    dialogue = begun(tools, question())
    turn(tools, dialogue, "<1>")
    [action] = dialogue.reply("<1>").actions
    assert action.arguments["path"] == ["film.film.directed_by", "^film.film.directed_by"]
    assert (action.arguments["entity"], action.arguments["question"]) == ("Heat", "who directed Heat ?")


def test_on_the_last_turn_only_the_answer_is_left(tools):
    dialogue = begun(tools, question(), turns=2)
    assert turn(tools, dialogue, "<1>", left=1) == "<options><0> answer</options>"
    assert dialogue.reply("<1>").problem is not None
    assert dialogue.reply("<0>").answers


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<3>", "there is no option <3>"),
        ("<0>", "there is no option <0>"),  # nothing was followed, and there is something to follow
        ("1", "no number such as <1> was found"),
        ("", "no number"),
        ("<99999999999999999999>", "no number"),
    ],
)
def test_what_is_no_option_is_a_problem_in_words(tools, text, problem):
    dialogue = begun(tools, question())
    reply = dialogue.reply(text)
    assert problem in reply.problem
    told = said(dialogue.complaint(reply.problem, 3))
    assert told.startswith("<error>")
    assert told.endswith("<1> directed by<2> starring</options>")


def test_a_number_beside_words_is_understood_but_not_well_formed(tools):
    dialogue = begun(tools, question())
    assert dialogue.reply("<1>").well_formed
    reply = dialogue.reply("I take <1>")
    assert reply.actions
    assert not reply.well_formed


def test_several_topics_are_named_with_each_of_their_relations(tools):
    dialogue = begun(tools, question("who directed Heat and was born in Chicago ?", "Heat", "Chicago"))
    assert said(dialogue.prompt()) == (
        "<question>who directed Heat and was born in Chicago ?</question><options><1> Heat : directed by"
        "<2> Heat : starring<3><inverse> Chicago : place of birth</options>"
    )
    assert "place of birth" in turn(tools, dialogue, "<3>")
    assert [answer.text for answer in dialogue.reply("<0>").answers] == ["Mann"]


def test_a_topic_that_the_graph_lacks_leaves_an_answer_of_nothing(tools):
    dialogue = begun(tools, question("who directed Nothing ?", "Nothing"))
    assert said(dialogue.prompt()).endswith(
        '<error>Entity "Nothing" not found in KG</error><options><0> answer</options>'
    )
    assert dialogue.reply("<0>").answers == ()


def test_relations_of_one_name_are_told_apart_by_their_whole_ids():
    store = OxigraphStore.from_triples(
        [
            ("Heat", "film.film.name", "x"),
            ("Heat", "book.book.name", "y"),
            ("Heat", "http://e.org/a#hasPart", "z"),
        ]
    )
    dialogue = begun(LocalGraphTools(FixedGraphs({"toy": store})), question())
    assert said(dialogue.prompt()).endswith(
        "<options><1> book book name<2> film film name<3> has part</options>"
    )


def test_more_relations_than_are_listed_are_chosen_by_the_question():
    hub = [("Heat", f"r.relation{number}", f"e{number}") for number in range(2000)]
    store = OxigraphStore.from_triples([*hub, ("Heat", "film.directed_by", "Mann")])
    dialogue = begun(
        LocalGraphTools(FixedGraphs({"toy": store})), question(), ChoosingProtocol(max_options=20)
    )
    prompt = said(dialogue.prompt())
    assert "directed by" in prompt
    assert "<20>" in prompt
    assert "<21>" not in prompt


def test_a_step_that_fails_leaves_the_walk_where_it_was(tools):
    dialogue = begun(tools, question())
    assert dialogue.reply("<1>").actions
    late = Failure(ErrorCode.SERVER_ERROR, ErrorKind.QUERY_TIMEOUT, "the query took too long")
    dialogue.take([late])
    told = said(dialogue.observation(3))
    assert told == "<error>the query took too long</error><options><1> directed by<2> starring</options>"
    assert "place of birth" in turn(tools, dialogue, "<1>")


def test_a_language_model_is_told_the_rules_and_where_it_is(tools):
    dialogue = begun(tools, question(), ChoosingProtocol(prompt="full"))
    prompt = said(dialogue.prompt())
    assert "at most 3 steps" in prompt
    assert prompt.endswith("\n\nQuestion: who directed Heat ?\n<1> directed by\n<2> starring\nReply:")
    opening = dialogue.opening(native_tools=False)
    assert opening.system + opening.user == prompt
    assert turn(tools, dialogue, "<1>") == (
        "\nFound: Mann\n<0> answer\n<1><inverse> directed by\n<2> place of birth\nReply:"
    )
    assert said(dialogue.complaint("what is <9> ?", 2)).startswith("\nError: what is <9> ?\nFound: Mann\n")


def test_an_episode_looks_around_before_its_first_turn(tools):
    codec = make_codec()
    episode = Episode(question(), ChoosingProtocol(), codec, BUDGET)
    assert episode.token_ids == []
    episode.observe(tools.execute("toy", episode.actions))
    assert codec.decode(episode.token_ids).endswith("<1> directed by<2> starring</options>")
    assert not episode.actions
    assert episode.turns == []


def test_an_episode_of_messages_does_so_too(tools):
    episode = ChatEpisode(question(), ChoosingProtocol(prompt="full"), BUDGET)
    episode.observe(tools.execute("toy", episode.actions))
    assert episode.conversation.messages[-1].text.endswith("<2> starring\nReply:")


def test_any_policy_that_writes_numbers_can_play(tools):
    codec = make_codec()
    turns = iter(("<1>", "<2>", "<0>"))
    agent = Agent(ScriptedPolicy(codec, lambda _: next(turns)), codec, ChoosingProtocol(), tools, BUDGET)
    [trajectory] = linear_rollout(agent, question("where was the director of Heat born ?"), 1, 1.0)
    assert trajectory.status is Status.ANSWERED
    assert trajectory.answers == ("Chicago",)
    assert [t.actions[0].arguments["path"] for t in trajectory.turns[:2]] == [
        '["film.film.directed_by"]',
        '["film.film.directed_by", "people.person.placeOfBirth"]',
    ]
    assert trajectory.turns[0].actions[0].items == ("Mann",)


def test_every_number_is_a_tag():
    assert len([tag for tag in ChoosingProtocol.tags if tag[1:-1].isdigit()]) == MOST_OPTIONS
