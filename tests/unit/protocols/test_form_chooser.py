"""The dialect of choices among logical forms, over a graph with values, classes and namesakes."""

from __future__ import annotations

import pytest

from kbqa.environment import Budget
from kbqa.evidence import Claims
from kbqa.evidence.support import confirmed
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols.base import begins_anywhere
from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.protocols.form_chooser import TOPICS, FormChoosingProtocol
from kbqa.rollouts import Agent, linear_rollout
from kbqa.trajectory import Question, Status
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

GRAPH = """\
@prefix : <http://films.example/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
:heat a :Film ; rdfs:label "Heat" ; :directedBy :mann ; :starring :pacino, :kilmer ; :runtime 170 ;
    :released "1995-12-15"^^xsd:date .
:ali a :Film ; rdfs:label "Ali" ; :directedBy :mann ; :starring :smith ; :runtime 157 ;
    :released "2001-12-25"^^xsd:date .
:insider a :Film ; rdfs:label "The Insider" ; :directedBy :mann ; :starring :pacino ; :runtime 157 ;
    :released "1999-11-05"^^xsd:date .
:mann a :Person ; rdfs:label "Michael Mann" .
:pacino a :Person ; rdfs:label "Al Pacino" .
:kilmer a :Person ; rdfs:label "Val Kilmer" .
:smith a :Person ; rdfs:label "Will Smith" .
:mann :born "Chicago" .
:pacino :played :role1, :role2 .
:role1 :in :heat ; :character "Vincent Hanna" .
:role2 :in :insider ; :character "Lowell Bergman" .
:song a :Song ; rdfs:label "Heat" ; :performedBy :smith .
"""
EX = "http://films.example/"
BUDGET = Budget(max_turns=4, max_tokens=8192, max_turn_tokens=16, max_observation_tokens=4096)


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "films.ttl").write_text(GRAPH)
    catalog = GraphCatalog(home)
    catalog.load("films", home / "films.ttl")
    yield LocalGraphTools(catalog)
    catalog.close()


def question(text, *topics):
    return Question("q", text, (), tuple(f"{EX}{topic}" for topic in topics), "films")


def begun(tools, asked, turns=6, **options):
    dialogue = FormChoosingProtocol(**options).begin(asked, turns)
    dialogue.take(tools.execute("films", dialogue.first_look()))
    return dialogue


def said(segments):
    return "".join(segment.text for segment in segments)


def choose(tools, dialogue, words, left=4):
    """Take the option that is shown with these words."""
    (number,) = (n for n, option in dialogue._options.items() if f"{option.tags} {option.words}" == words)
    reply = dialogue.reply(f"<{number}>")
    assert reply.problem is None, reply.problem
    dialogue.take(tools.execute("films", reply.actions))
    return said(dialogue.observation(left))


def answers(dialogue):
    return sorted(answer.text for answer in dialogue.reply("<0>").answers)


def test_the_question_is_read_without_its_topics_and_each_has_a_tag(tools):
    shown = said(begun(tools, question("films by Michael Mann with Al Pacino", "mann", "pacino")).prompt())
    assert shown.startswith("<question>films by <topic> with <topic2></question><options>")
    assert "<inverse><topic> directed by" in shown
    assert "<inverse><topic2> starring" in shown
    assert "<start> film" in shown


@pytest.mark.parametrize(
    ("text", "topic", "shown"),
    [
        ("films by Mr. Mann?", "mann", "films by Mr. <topic>?"),
        ("Heats by whom?", "heat", "<topic> by whom?"),
        ("which films have 7 stars?", "heat", "which films have 7 stars?"),
    ],
)
def test_a_topic_is_read_where_the_question_nearly_names_it(tools, text, topic, shown):
    assert said(begun(tools, question(text, topic)).prompt()).startswith(f"<question>{shown}</question>")


def test_a_literal_is_a_topic_like_any_other(tools):
    asked = Question("q", "who was born in Chicago?", (), ('"Chicago"',), "films")
    dialogue = begun(tools, asked)
    assert said(dialogue.prompt()).startswith("<question>who was born in <topic>?</question>")
    choose(tools, dialogue, "<inverse> born")
    assert answers(dialogue) == ["Michael Mann"]


def test_nodes_without_names_are_no_answers(tools):
    dialogue = begun(tools, question("which characters did Al Pacino play?", "pacino"))
    shown = choose(tools, dialogue, " played")
    assert "answer" not in shown
    assert "there is no option <0>" in dialogue.reply("<0>").problem
    assert "<0> answer" in choose(tools, dialogue, " character")
    assert answers(dialogue) == ["Lowell Bergman", "Vincent Hanna"]
    # In the last turn there is nothing else to choose.
    dialogue = begun(tools, question("which characters did Al Pacino play?", "pacino"))
    assert "<0> answer" in choose(tools, dialogue, " played", left=1)
    assert len(answers(dialogue)) == 2


def test_an_answer_found_from_a_literal_is_confirmed(tools):
    asked = Question("q", "who was born in Chicago?", (), ('"Chicago"',), "films")
    options = begun(tools, asked)._options
    [number] = [n for n, option in options.items() if option.words == "born"]
    codec, written = make_codec(), iter([f"<{number}>", "<0>"])
    policy = ScriptedPolicy(codec, lambda _: next(written))
    runs = linear_rollout(Agent(policy, codec, FormChoosingProtocol(), tools, BUDGET), asked, 1, 1.0)
    [answer] = confirmed(runs, frozenset(asked.topic_entities), Claims(tools, "films"))
    assert answer.id == f"{EX}mann"
    assert 'born> "Chicago"' in answer.evidence.sparql


def test_an_intersection_keeps_the_members_with_a_path_to_the_other_topic(tools):
    dialogue = begun(tools, question("films by Michael Mann with Al Pacino", "mann", "pacino"))
    shown = choose(tools, dialogue, "<inverse><topic> directed by")
    assert shown.startswith("<options><0> answer<")
    choose(tools, dialogue, "<keep><topic2> starring")
    assert answers(dialogue) == ["Heat", "The Insider"]


@pytest.mark.parametrize(
    ("text", "choices", "expected"),
    [
        ("the longest film by Michael Mann", ["<max> greatest runtime"], ["Heat"]),
        ("the shortest", ["<min> smallest runtime"], ["Ali", "The Insider"]),
        ("the latest", ["<max> latest released"], ["Ali"]),
        ("the earliest", ["<min> earliest released"], ["Heat"]),
        ("longer than 160 minutes", ["<gt> runtime more than"], ["Heat"]),
        ("at most 160 minutes", ["<le> runtime at most"], ["Ali", "The Insider"]),
        ("after 1999", ["<gt> released after"], ["Ali"]),
        ("in 1999 or later", ["<ge> released in or after"], ["Ali", "The Insider"]),
        ("how many", ["<count> number"], ["3"]),
        ("how many before 1999", ["<lt> released before", "<count> number"], ["1"]),
    ],
)
def test_every_selection_is_a_choice(tools, text, choices, expected):
    dialogue = begun(tools, question(f"{text} : Michael Mann", "mann"))
    choose(tools, dialogue, "<inverse> directed by")
    for words in choices:
        choose(tools, dialogue, words)
    assert answers(dialogue) == expected


def test_values_are_said_if_there_are_several(tools):
    asked = question("films by Michael Mann longer than 160 minutes and shorter than 165", "mann")
    dialogue = begun(tools, asked)
    shown = choose(tools, dialogue, "<inverse> directed by")
    assert "<lt> runtime less than 165" in shown
    choose(tools, dialogue, "<gt> runtime more than 160")
    assert answers(dialogue) == ["Heat"]


def test_a_question_without_topics_begins_with_a_class(tools):
    dialogue = begun(tools, question("what is the longest film of all ?"))
    choose(tools, dialogue, "<start> film")
    choose(tools, dialogue, "<max> greatest runtime")
    assert answers(dialogue) == ["Heat"]


def test_namesakes_share_a_tag_and_are_told_apart_by_their_class(tools):
    dialogue = begun(tools, question("who performed the song Heat ?", "heat", "song"))
    shown = said(dialogue.prompt())
    assert shown.startswith("<question>who performed the song <topic> ?</question>")
    choose(tools, dialogue, " song performed by")
    assert answers(dialogue) == ["Will Smith"]
    assert "film directed by" in shown


def test_a_topic_that_is_not_in_the_graph_is_reported_and_costs_nothing_else(tools):
    shown = said(begun(tools, question("films by Nobody with Al Pacino", "nobody", "pacino")).prompt())
    assert "starring" in shown
    lost = begun(tools, question("films by Nobody", "nobody"), operations=("join",))
    assert f'<error>Entity "{EX}nobody" not found in KG</error>' in said(lost.prompt())
    assert lost.reply("<0>").answers == ()


def test_of_very_many_topics_the_first_are_read(tools):
    """A name that hundreds of entities share must not cost the question."""
    dialogue = begun(tools, question("films with Al Pacino", "pacino", *(f"nobody{n}" for n in range(40))))
    assert "<inverse> starring" in said(dialogue.prompt())


def test_only_the_operations_of_the_recipe_are_offered(tools):
    dialogue = begun(tools, question("the longest film by Michael Mann", "mann"), operations=("join", "max"))
    shown = choose(tools, dialogue, "<inverse> directed by")
    assert "<max> greatest runtime" in shown
    assert not any(tag in shown for tag in ("<min>", "<count>", "<start>", "<type>"))


def test_on_the_last_turn_only_the_answer_is_left(tools):
    dialogue = begun(tools, question("the longest film by Michael Mann", "mann"))
    assert choose(tools, dialogue, "<inverse> directed by", left=1) == "<options><0> answer</options>"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("the longest", "no number such as <1> was found"),
        ("<250>", "there is no option <250>"),
        ("<0>", "there is no option <0>"),
    ],
)
def test_a_turn_that_is_no_choice_is_refused_and_nothing_is_lost(tools, text, problem):
    dialogue = begun(tools, question("films by Michael Mann", "mann"))
    before = said(dialogue.prompt())
    reply = dialogue.reply(text)
    assert reply.problem == f"{problem}; write the number of one option that is listed"
    shown = said(dialogue.complaint(reply.problem, 4))
    assert shown.startswith(f"<error>{reply.problem}</error><options>")
    assert shown.endswith(before.partition("</question><options>")[2])


def test_names_that_look_like_tags_are_text(tools):
    dialogue = begun(tools, question("films by <max> Michael Mann", "mann"))
    written = [segment for segment in dialogue.prompt() if "<max>" in segment.text]
    assert written
    assert not any(segment.trusted for segment in written)


def test_an_episode_ends_with_the_members_of_its_form(tools):
    codec = make_codec()
    asked = question("films by Michael Mann", "mann")
    options = begun(tools, asked)._options.items()
    (number,) = (n for n, option in options if option.words == "directed by")
    turns = iter((f"<{number}>", "<0>"))
    agent = Agent(ScriptedPolicy(codec, lambda _: next(turns)), codec, FormChoosingProtocol(), tools, BUDGET)
    [trajectory] = linear_rollout(agent, asked, 1, 1.0)
    assert trajectory.status is Status.ANSWERED
    assert sorted(trajectory.answers) == ["Ali", "Heat", "The Insider"]
    assert trajectory.turns[0].actions[0].arguments["form"] == f"(JOIN {EX}directedBy {EX}mann)"


def supported(tools, asked, choices, **options):
    """The answers of an episode that takes the options with these words, with their evidence."""
    codec, dialogue = make_codec(), begun(tools, asked, **options)

    def turns():
        for words in choices:
            shown = dialogue._options.items()
            (number,) = (n for n, option in shown if f"{option.tags} {option.words}" == words)
            yield f"<{number}>"
            choose(tools, dialogue, words)
        yield "<0>"

    written = turns()
    policy = ScriptedPolicy(codec, lambda _: next(written))
    runs = linear_rollout(Agent(policy, codec, FormChoosingProtocol(**options), tools, BUDGET), asked, 1, 1.0)
    return confirmed(runs, frozenset(asked.topic_entities), Claims(tools, "films"))


@pytest.mark.parametrize(
    ("choices", "expected", "said_in_sparql"),
    [
        (["<inverse> directed by"], ["Ali", "Heat", "The Insider"], "directedBy"),
        (["<inverse> directed by", "<max> greatest runtime"], ["Heat"], "MAX"),
        (["<inverse> directed by", "<count> number"], ["3"], "COUNT"),
    ],
)
def test_the_query_of_the_form_is_the_evidence(tools, choices, expected, said_in_sparql):
    answers = supported(tools, question("films by Michael Mann", "mann"), choices)
    assert sorted(answer.given.text for answer in answers) == expected
    for answer in answers:
        assert said_in_sparql in answer.evidence.sparql
        assert answer.id in {term["id"] for row in answer.evidence.rows for term in row.values()}


@pytest.mark.parametrize(("topics", "holds"), [(("mann", "ali"), True), (("smith", "heat"), False)])
def test_a_yes_no_question_is_answered_with_an_ask_as_its_evidence(tools, topics, holds):
    name, film = ("Michael Mann", "Ali") if holds else ("Will Smith", "Heat")
    relation = "directed by" if holds else "starring"
    choices = [f"<inverse><topic> {relation}", "<ask><topic2> whether"]
    asked = question(f"is {name} behind {film} ?", *topics)
    [answer] = supported(tools, asked, choices, may_ask=True)
    assert answer.given.text == str(holds).lower()
    assert answer.evidence.sparql.startswith("ASK")
    assert answer.evidence.boolean is holds


def test_only_a_policy_that_may_ask_is_offered_to(tools):
    dialogue = begun(tools, question("did Michael Mann direct Ali ?", "mann", "ali"))
    choose(tools, dialogue, "<inverse><topic> directed by")
    assert "<ask>" not in said(dialogue.observation(4))


def test_its_tags_begin_with_those_of_paths():
    """So that a policy that knows paths can go on with forms."""
    assert FormChoosingProtocol.tags[: len(ChoosingProtocol.tags)] == ChoosingProtocol.tags
    assert set(TOPICS) <= set(FormChoosingProtocol.tags)


def test_a_policy_that_declines_reads_the_same_options_without_this_one(tools):
    dialogue = begun(tools, question("who scored Heat", "heat"), may_decline=True)
    shown = said(dialogue.prompt())
    number = len(dialogue._options) + 1
    assert shown.endswith(f"<{number}><none> none of these</options>")
    reply = dialogue.reply(f"<{number}>")
    assert (reply.thought, reply.problem, reply.answers) == ("none of these", None, None)
    dialogue.take(tools.execute("films", reply.actions))
    again = said(dialogue.observation(4))
    assert "<none>" not in again
    assert again == shown[shown.index("<options>") :].replace(f"<{number}><none> none of these", "")
    # What it chooses then is a candidate like any other form, and it cannot decline twice.
    choose(tools, dialogue, " directed by")
    assert "<none>" not in said(dialogue.observation(3))
    assert answers(dialogue) == ["Michael Mann"]


def test_what_others_have_can_be_chosen_as_missing_and_says_why(tools):
    asked = question("where was Will Smith born", "smith")
    for options in ({"may_decline": True}, {"list_missing": True}):
        assert "<missing>" not in said(begun(tools, asked, **options).prompt())
    dialogue = begun(tools, asked, may_decline=True, list_missing=True)
    listed = said(dialogue.prompt())
    (number,) = (n for n, option in dialogue._missing.items() if option.words == "born")
    assert f"<{number}><missing> born<" in listed
    reply = dialogue.reply(f"<{number}>")
    assert reply.thought == 'none of these: no "born" here'
    dialogue.take(tools.execute("films", reply.actions))
    again = said(dialogue.observation(3))
    assert "<missing>" not in again
    assert "<none>" not in again


@pytest.mark.parametrize(
    ("text", "topic", "lacks"),
    [
        ("who directed Michael Mann ?", "mann", 'no "directed by" here'),
        ("what was directed by Heat ?", "heat", 'nothing leads here by "directed by"'),
    ],
)
def test_a_relation_that_leads_only_the_other_way_is_missing_and_says_which_way(tools, text, topic, lacks):
    dialogue = begun(tools, question(text, topic), may_decline=True, list_missing=True)
    [number] = (n for n, option in dialogue._missing.items() if option.words == "directed by")
    assert all("directed by" not in option.words for option in dialogue._options.values())
    assert dialogue.reply(f"<{number}>").thought == f"none of these: {lacks}"


def test_declining_is_possible_at_every_turn_that_has_options(tools):
    dialogue = begun(tools, question("who scored Heat", "heat"), may_decline=True)
    assert "<none> none of these" in choose(tools, dialogue, " directed by")
    assert "<none>" not in said(dialogue.observation(1))  # the last turn can only answer
    assert "<none>" not in said(begun(tools, question("who scored Heat", "heat")).prompt())


def test_only_forms_may_begin_without_a_topic(tools):
    assert begins_anywhere(FormChoosingProtocol())
    assert not begins_anywhere(ChoosingProtocol())
    dialogue = begun(tools, question("which film is the longest ?"))
    shown = choose(tools, dialogue, "<start> film")
    assert "<max> greatest runtime" in shown


def test_two_relations_through_a_node_without_a_name_are_one_option(tools):
    asked = question("whom did Al Pacino play ?", "pacino")
    assert "> played character<" not in said(begun(tools, asked).prompt())
    dialogue = begun(tools, asked, pass_nameless=True)
    assert "> played character<" in said(dialogue.prompt())
    choose(tools, dialogue, " played character")
    assert answers(dialogue) == ["Lowell Bergman", "Vincent Hanna"]


def test_a_policy_that_looks_ahead_reads_what_lies_behind_each_relation(tools):
    dialogue = begun(tools, question("where was the director of Heat born", "heat"), look_ahead=True)
    shown = said(dialogue.prompt())
    assert "> directed by<then><inverse> directed by<then> born<then> type<" in shown
    assert "<then>" not in said(begun(tools, question("where was he born", "heat")).prompt())
    again = choose(tools, dialogue, " directed by")
    assert "> born<then><inverse> born<" in again
    choose(tools, dialogue, " born")
    assert answers(dialogue) == ["Chicago"]


def test_members_of_another_class_than_the_question_asks_for_are_no_answer(tools):
    asked = question("which persons acted with Al Pacino ?", "pacino")
    shown = choose(tools, begun(tools, asked), "<inverse> starring")
    assert "<0> answer" not in shown
    assert "> starring<" in shown
    shown = choose(
        tools, begun(tools, question("which films has Al Pacino ?", "pacino")), "<inverse> starring"
    )
    assert "<0> answer" in shown


def test_all_of_a_class_is_an_answer_that_cannot_be_declined(tools):
    dialogue = begun(tools, question("list all films"), may_decline=True)
    assert said(dialogue.prompt()).count("<none>") == 0
    shown = choose(tools, dialogue, "<start> film")
    assert shown == "<options><0> answer</options>"
    assert sorted(answers(dialogue)) == ["Ali", "Heat", "The Insider"]
    assert "<none>" in said(begun(tools, question("list all films by night"), may_decline=True).prompt())
