import json
import random

import pytest

from kbqa.cold_start.demonstrations import demonstrate, play_program
from kbqa.cold_start.imitation import MadeUpNames, example, fresh_name, under_other_names
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import InteractiveParsing, KbqaR1, KgR1, KnowCoderA1, SparqlRefinement
from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.recipes import load_recipe
from kbqa.trajectory import Hop, Question
from tests.unit.policies_fixtures import make_codec

PROTOCOL = KgR1("brief")


def parse(text):
    return PROTOCOL.begin(BORN, max_turns=5).reply(text)


TRIPLES = [
    ("Heat", "starring", "Al P"),
    ("Heat", "starring", "Val K"),
    ("Ronin", "starring", "Val K"),
    ("Al P", "born", "1940"),
    ("Val K", "born", "1959"),
]


@pytest.fixture
def tools():
    return LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}))


def ask(path, answers, topic="Heat"):
    return Question("q", f"about {topic} ?", tuple(answers), (topic,), "films", path=tuple(path))


BORN = ask([Hop("starring"), Hop("born")], ["1940", "1959"])


def text_of(demonstration, by_policy):
    return ["".join(s.text for s in p.segments) for p in demonstration.passages if p.by_policy is by_policy]


def test_a_gold_path_is_played_node_by_node(tools):
    demonstration = demonstrate(BORN, PROTOCOL, tools, max_turns=5)
    turns = text_of(demonstration, by_policy=True)
    assert [parse(turn).actions[0].arguments for turn in turns[:-1]] == [
        {"entity": "Heat", "relation": "starring"},
        {"entity": "Al P", "relation": "born"},
        {"entity": "Val K", "relation": "born"},
    ]
    assert [a.text for a in parse(turns[-1]).answers] == ["1940", "1959"]
    assert all(parse(turn).well_formed for turn in turns)


def test_observations_are_what_the_graph_says(tools):
    demonstration = demonstrate(BORN, PROTOCOL, tools, max_turns=5)
    assert 'Tail entities for relation "born" with head "Al P": 1940' in text_of(demonstration, False)[2]


def test_an_inverse_hop_asks_for_heads(tools):
    question = ask([Hop("starring", inverse=True)], ["Heat", "Ronin"], topic="Val K")
    turn = text_of(demonstrate(question, PROTOCOL, tools, 5), by_policy=True)[0]
    assert parse(turn).actions[0].name == "get_head_entities"


def test_a_path_that_comes_back_to_the_topic_leaves_it_out(tools):
    question = ask([Hop("starring"), Hop("starring", inverse=True)], ["Ronin"])
    turns = text_of(demonstrate(question, PROTOCOL, tools, 6), by_policy=True)
    assert [a.text for a in parse(turns[-1]).answers] == ["Ronin"]


def test_a_path_that_does_not_fit_the_budget_or_the_answers_is_no_demonstration(tools):
    assert demonstrate(BORN, PROTOCOL, tools, max_turns=3) is None
    assert demonstrate(ask([Hop("starring")], ["Al P"]), PROTOCOL, tools, 5) is None
    assert demonstrate(ask([Hop("starring")], ["Al P", "Val K"]), PROTOCOL, tools, 5, max_items=1) is None


def test_a_question_without_path_is_an_error(tools):
    with pytest.raises(ValueError, match="no gold path"):
        demonstrate(ask([], ["x"]), PROTOCOL, tools, 5)


def test_names_are_replaced_everywhere_and_alike(tools):
    demonstration = demonstrate(BORN, PROTOCOL, tools, 5)
    renamed = demonstration.renamed({"Heat": "Zork", "Al P": "Bo", "Val K": "Cy", "1940": "11", "1959": "22"})
    everything = "".join(text_of(renamed, True) + text_of(renamed, False))
    assert not any(name in everything for name in ("Heat", "Al P", "Val K", "1940", "1959"))
    turns = text_of(renamed, by_policy=True)
    assert parse(turns[0]).actions[0].arguments["entity"] == "Zork"
    assert [a.text for a in parse(turns[-1]).answers] == ["11", "22"]


def test_a_name_inside_a_word_is_left_alone(tools):
    question = Question("q", "the birthplace of art ?", ("x",), ("art",), "films", path=(Hop("r"),))
    store = OxigraphStore.from_triples([("art", "r", "x")])
    demonstration = demonstrate(question, PROTOCOL, LocalGraphTools(FixedGraphs({"films": store})), 4)
    prompt = text_of(demonstration.renamed({"art": "zzz"}), False)[0]
    assert "zzz" in prompt
    assert "start" not in prompt


SPARQL = SparqlRefinement("brief")
ACTOR = ask([Hop("starring", inverse=True)], ["Heat"], topic="Al P")


def test_a_path_is_one_query_where_the_dialect_is_sparql(tools):
    demonstration = demonstrate(ACTOR, SPARQL, tools, max_turns=4)
    query, answer = text_of(demonstration, by_policy=True)
    assert "{ ?x <urn:kbqa:r:starring> <urn:kbqa:e:Al%20P> }" in query
    assert text_of(demonstration, False)[1] == "<query_result>Heat (<urn:kbqa:e:Heat>)</query_result>"
    assert answer.endswith("<answer>Heat</answer>")
    assert demonstrate(BORN, SPARQL, tools, max_turns=4) is None  # two answers are no scalar


def test_a_name_is_replaced_in_iris_too(tools):
    renamed = demonstrate(ACTOR, SPARQL, tools, 4).renamed({"Al P": "Bo Q", "Heat": "Zork"})
    everything = "".join(text_of(renamed, True) + text_of(renamed, False))
    assert "<urn:kbqa:e:Bo%20Q>" in everything
    assert "Al%20P" not in everything


def test_the_mask_covers_exactly_the_policys_passages(tools):
    codec = make_codec()
    demonstration = demonstrate(BORN, PROTOCOL, tools, 5)
    made = example(demonstration, codec)
    written = codec.decode([t for t, m in zip(made.token_ids, made.mask, strict=True) if m])
    assert written == "".join(text_of(demonstration, by_policy=True))


def test_a_fresh_name_has_the_same_shape():
    name = fresh_name("O'Neil (born 1959), jr.", ["ab", "cd"], random.Random(1))
    assert name != "O'Neil (born 1959), jr."
    assert [c for c in name if not c.isalnum()] == [c for c in "O'Neil (born 1959), jr." if not c.isalnum()]
    assert sum(c.isdigit() for c in name) == 4


def test_a_demonstration_is_drawn_under_other_names_each_time(tools):
    demonstration = demonstrate(BORN, PROTOCOL, tools, 5)
    names, rng = MadeUpNames(["ka", "lo", "mi"]), random.Random(1)
    drawn = [example(under_other_names(demonstration, names, rng), make_codec()) for _ in range(8)]
    assert len({e.token_ids for e in drawn}) == 8


def test_names_may_be_those_of_other_entities():
    names = MadeUpNames(["ka"], known=["Kapò", "Σωκράτης"], share=0.5)
    drawn = [names.draw("Ada", random.Random(seed)) for seed in range(40)]
    assert {"Kapò", "Σωκράτης"} < set(drawn)
    assert all(set(name) <= set("ka") for name in drawn if name not in names.known)
    assert drawn.count("Kapò") < drawn.count("Σωκράτης")  # what is long is harder to copy
    assert MadeUpNames(["ka"], known=["Kapò"]).draw("Ada", random.Random(1)) == "ka"


def test_observations_of_examples_are_cut_as_those_of_episodes(tools):
    demonstration = demonstrate(BORN, PROTOCOL, tools, 5)
    whole = example(demonstration, make_codec())
    cut = example(demonstration, make_codec(), max_observation_tokens=1)
    assert len(cut.token_ids) < len(whole.token_ids)
    assert sum(cut.mask) == sum(whole.mask)


PARSING = InteractiveParsing("brief")


def test_a_path_is_queried_hop_by_hop_where_the_dialect_parses_interactively(tools):
    demonstration = demonstrate(BORN, PARSING, tools, max_turns=5)
    node, first, variable, second, answer = text_of(demonstration, by_policy=True)
    assert node == "<think>starring then born</think><node>Heat</node>"
    assert "{ <urn:kbqa:e:Heat> <urn:kbqa:r:starring> ?x }" in first
    assert variable == "<think>born</think><node>?x</node>"
    assert "{ <urn:kbqa:e:Heat> <urn:kbqa:r:starring> ?e0 . ?e0 <urn:kbqa:r:born> ?x }" in second
    assert answer == r"<think></think><answer>\boxed{?x}</answer>"
    observations = text_of(demonstration, by_policy=False)
    assert "<node> starring ?a" in observations[1]
    assert "<node> born ?a" in observations[3]
    assert demonstrate(BORN, PARSING, tools, max_turns=4) is None


def test_an_answer_by_reference_gives_way_to_a_list_where_the_path_comes_back(tools):
    question = ask([Hop("starring"), Hop("starring", inverse=True)], ["Ronin"])
    assert text_of(demonstrate(question, PARSING, tools, 5), by_policy=True)[-1].endswith(
        r"\boxed{Ronin}</answer>"
    )


def test_a_path_is_built_action_by_action_where_the_dialect_is_logical_forms(tools):
    demonstration = demonstrate(BORN, KbqaR1("brief"), tools, max_turns=4)
    assert text_of(demonstration, by_policy=True) == [
        "<think>starring then born</think><action>Find_relation [ Heat | starring ]</action>",
        "<think>born</think><action>Find_relation [ expression1 | born ]</action>",
        "<think></think><answer>expression2</answer>",
    ]
    assert "expression2 = (JOIN (R born) (JOIN (R starring) Heat))" in text_of(demonstration, False)[2]
    assert demonstrate(BORN, KbqaR1("brief"), tools, max_turns=2) is None


def test_a_direction_that_the_graph_guesses_otherwise_is_no_demonstration(tools):
    triples = [("Ann", "parent", "Bea"), ("Cid", "parent", "Ann")]
    family = LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(triples)}))
    parents = ask([Hop("parent")], ["Bea"], topic="Ann")
    children = ask([Hop("parent", inverse=True)], ["Cid"], topic="Ann")
    assert demonstrate(parents, KbqaR1("brief"), family, 4) is not None
    assert demonstrate(children, KbqaR1("brief"), family, 4) is None


def test_a_path_is_one_call_and_its_variable_the_answer_where_the_dialect_calls_functions(tools):
    demonstration = demonstrate(BORN, KnowCoderA1("brief"), tools, max_turns=3)
    call, answer = text_of(demonstration, by_policy=True)
    assert '{"name": "ExecuteSPARQL", "arguments": {"sparql": "SELECT DISTINCT ?x WHERE { ' in call
    assert "<urn:kbqa:e:Heat> <urn:kbqa:r:starring> ?e0 . ?e0 <urn:kbqa:r:born> ?x }" in call
    shown = text_of(demonstration, False)[1]
    assert sorted(json.loads(shown[len("<tool_response>") : -len("</tool_response>")])) == ["1940", "1959"]
    assert answer == r"<think></think><answer> the answer is \boxed{?x} </answer>"


def test_a_path_is_chosen_hop_by_hop_where_the_dialect_lists_options(tools):
    demonstration = demonstrate(BORN, ChoosingProtocol(prompt="full"), tools, max_turns=3)
    assert text_of(demonstration, by_policy=True) == ["<1>", "<1>", "<0>"]
    first, second, last = text_of(demonstration, by_policy=False)
    assert first.endswith("Question: about Heat ?\n<1> starring\nReply:")
    assert second.endswith("\n<0> answer\n<1> born\n<2><inverse> starring\nReply:")
    assert last == "\nFound: 1940, 1959\n<0> answer\nReply:"
    assert demonstrate(BORN, ChoosingProtocol(prompt="full"), tools, max_turns=2) is None
    unlisted = ChoosingProtocol(
        prompt="full", max_options=1
    )  # the one that fits the question best is another
    together = ask([Hop("starring"), Hop("starring", inverse=True)], ["Heat"], topic="Ronin")
    assert demonstrate(together, ChoosingProtocol(prompt="full"), tools, 4) is not None
    assert demonstrate(together, unlisted, tools, 4) is None


@pytest.mark.parametrize(
    ("protocol", "ending"),
    [(KbqaR1("brief"), ">expression2</answer>"), (KnowCoderA1("brief"), '\\boxed{["Ronin"]} </answer>')],
)
def test_a_path_that_comes_back_to_its_topic_leaves_it_out_in_every_dialect(tools, protocol, ending):
    question = ask([Hop("starring"), Hop("starring", inverse=True)], ["Ronin"])
    demonstration = demonstrate(question, protocol, tools, 5)
    assert text_of(demonstration, by_policy=True)[-1].endswith(ending)


@pytest.mark.parametrize("recipe", ["kg-r1", "kbqa-r1", "knowcoder-a1", "isp-kgr", "kbqa-r1-small"])
def test_every_turn_of_a_demonstration_is_well_formed_in_the_recipes_dialect(tools, recipe):
    protocol = load_recipe(recipe).protocol.build()
    played = play_program(BORN, protocol, tools, 6, 20)
    assert played is not None
    assert all(turn.well_formed for turn in played.turns), [turn.text for turn in played.turns]
