"""ISP-KGR's reward: Algorithm 2 line by line, and the distances and aggregates behind it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from kbqa.answers import f1
from kbqa.errors import GraphUnavailableError, JudgeUnavailableError
from kbqa.judges import MatchingJudge
from kbqa.kg.actions import FOLLOW_PATH, ErrorCode, ErrorKind, Failure
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.endpoint.record import Endpoint
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.terms import GraphTerms
from kbqa.kg.tools import LocalGraphTools
from kbqa.rewards import Instruments, IspKgrReward
from kbqa.rewards.isp_kgr import StepReward
from kbqa.rewards.progress import Command, MeasuredStep, measure, without_count
from kbqa.trajectory import ExecutedAction, Question, Status, Trajectory
from kbqa.tree import Step, Tree
from tests.sparql_servers import SparqlServer
from tests.unit.episodes import turn

REWARD = IspKgrReward()


def node(subject, well_formed=True):
    return MeasuredStep(Command.NODE, well_formed, subject)


def sparql(subject, score, variable="?x", well_formed=True, **more):
    return MeasuredStep(Command.SPARQL, well_formed, subject, score, (variable,), **more)


ANSWER = MeasuredStep(Command.ANSWER, True)
KNOWN = {"Ada": 1 / 3}


def progress(*steps, reward=REWARD, known=KNOWN):
    return [r.progress for r in reward.step_rewards(steps, [1.0] * len(steps), known)]


def test_lines_1_and_2_a_first_query_has_to_come_nearer_than_nothing():
    assert progress(sparql("q", 1 / 3)) == [1]
    assert progress(sparql("q", 0.0)) == [0]


def test_line_6_a_bad_format_costs_and_takes_the_outcome():
    assert REWARD.step_rewards([node("Ada", well_formed=False)], [1.0], KNOWN) == [StepReward(-1, 0, 0)]


def test_lines_8_to_10_a_node_has_to_be_known():
    assert progress(node("Ada"), node("Byron")) == [0, -1]


def test_lines_10_and_20_a_variable_is_known_once_its_query_found_something():
    assert progress(node("?x"), sparql("q", 2 / 3), node("?x"), node("?y")) == [-1, 1, 0, -1]
    assert progress(sparql("q", None), node("?x")) == [-1, -1]


@pytest.mark.parametrize(
    "again", [sparql("q", 1.0), sparql("other", None), MeasuredStep(Command.NONE, False)]
)
def test_lines_14_and_15_a_repeated_query_and_one_that_finds_nothing_are_penalised(again):
    assert progress(sparql("q", 1 / 3), again) == [1, -1]


def test_line_21_only_coming_nearer_is_progress():
    assert progress(node("Ada"), sparql("a", 1 / 3), sparql("b", 2 / 3), sparql("c", 1 / 3)) == [0, 0, 1, 0]


def test_line_24_the_outcome_counts_where_neither_format_nor_progress_is_bad():
    steps = [node("Ada"), sparql("q", 2 / 3), sparql("q", 2 / 3), ANSWER]
    rewards = REWARD.step_rewards(steps, [0.5] * 4, KNOWN)
    assert [reward.outcome for reward in rewards] == [0.5, 0.5, 0.0, 0.5]


def test_lines_26_to_28_a_step_that_was_penalised_leaves_the_score_to_surpass():
    # After the unknown node (which scores 0) a query still has to beat 2/3.
    assert progress(sparql("a", 2 / 3), node("Byron"), sparql("b", 1 / 3)) == [1, -1, 0]
    # A known node sets it anew, also lower.
    assert progress(sparql("a", 2 / 3), node("Ada"), sparql("b", 2 / 3)) == [1, 0, 1]


def test_the_text_forgives_formats_keeps_outcomes_and_compares_with_the_latest_node():
    text = IspKgrReward(variant="text")
    steps = [node("Ada"), sparql("a", 2 / 3), sparql("b", 2 / 3), sparql("c", None, well_formed=False)]
    rewards = text.step_rewards(steps, [1.0] * 4, KNOWN)
    assert rewards == [StepReward(1, 0, 1), StepReward(1, 1, 1), StepReward(1, 1, 1), StepReward(0, -1, 1)]


def test_the_released_code_rates_by_f1_and_asks_for_a_node_before_a_query():
    released = IspKgrReward(variant="released")
    assert progress(sparql("a", 2 / 3), reward=released) == [0]
    assert progress(sparql("a", 1.0, f1=0.9), reward=released) == [1]
    # 0.5 + 0.5 * 0.2 = 0.6 lies below the node's 2/3, though a distance of 0 does not.
    near = {"Ada": 2 / 3}
    assert progress(node("Ada"), sparql("a", 1.0, f1=0.2), reward=released, known=near) == [0, 0]
    assert progress(node("Ada"), sparql("a", 1.0, f1=0.2), known=near) == [0, 1]


def test_a_score_that_is_the_same_but_for_rounding_is_no_progress():
    released = IspKgrReward(variant="released")
    found = f1(["Byron", "Notes", "Far", "Canto 1", "Canto 2"], ["Byron"])  # 1/3, and 0.5 + 0.5 / 3 = 2/3
    assert 0.5 + 0.5 * found > 2 / 3
    assert progress(node("Ada"), sparql("a", 1.0, f1=found), reward=released, known={"Ada": 2 / 3}) == [0, 0]
    nine_of_ten = f1(map(str, range(28)), map(str, range(1, 33)))  # 27 of 28 and of 32
    assert nine_of_ten < 0.9
    assert nine_of_ten == pytest.approx(0.9)
    assert progress(sparql("a", 1.0, f1=nine_of_ten), reward=released) == [1]


TRIPLES = [
    ("Ada", "parent", "Byron"),
    ("Byron", "born", "1788"),
    ("Ada", "wrote", "Notes"),
    *(("Byron", "wrote", f"Canto {number}") for number in (1, 2, 3)),
    *((f"Canto {number}", "lines", str(100 * number)) for number in (1, 2, 3)),
    ("Far", "lies", "away"),
]


@pytest.fixture(scope="module")
def tools():
    return LocalGraphTools(FixedGraphs({"people": OxigraphStore.from_triples(TRIPLES)}))


def asked(pattern, select="?x"):
    return f"SELECT {select} WHERE {{ {pattern} }}".replace("e:", "urn:kbqa:e:").replace("r:", "urn:kbqa:r:")


def query(text, *found, code=None):
    return turn(1, 2, actions=[ExecutedAction("execute_sparql", {"query": text}, code, found, found)])


def around(entity):
    return turn(1, 2, actions=[ExecutedAction("node_relations", {"node": entity, "question": "?"})])


LAST = turn(1, 2, status=Status.ANSWERED)
PARENT, BORN = asked("<e:Ada> <r:parent> ?x"), asked("<e:Byron> <r:born> ?x")


def about(*answers):
    return Question("q", "?", answers, ("Ada",), "people")


def score(tools, question, turns, *answers, **options):
    trajectory = Trajectory((0, 1), tuple(turns), Status.ANSWERED, answers)
    return IspKgrReward(**options).score(question, trajectory, Instruments(tools, MatchingJudge()))


def test_gold_earns_one_for_each_query_that_advances_and_less_for_node_and_answer(tools):
    """Ada lies two edges from 1788 (1/3), Byron one (2/3), 1788 none (1)."""
    scored = score(
        tools, about("1788"), [around("Ada"), query(PARENT, "Byron"), query(BORN, "1788"), LAST], "1788"
    )
    assert scored.turn_rewards == pytest.approx((0.4, 1.0, 1.0, 0.4))
    assert scored.outcome == 0.0
    assert scored.components["f1"] == 1.0
    assert scored.components["progress"] == 0.5


def test_the_released_weights(tools):
    turns = [around("Ada"), query(PARENT, "Byron"), LAST]
    scored = score(tools, about("1788"), turns, "1788", w_progress=0.3, w_outcome=0.6)
    assert scored.turn_rewards == pytest.approx((0.7, 1.0, 0.7))


@pytest.mark.parametrize(
    ("found", "expected"), [("1788", 1.0), ("Byron", 2 / 3), ("Ada", 1 / 3), ("Notes", 0.0), ("Far", 0.0)]
)
def test_distance_becomes_a_score(tools, found, expected):
    measured = measure(about("1788"), [query(PARENT, found)], Instruments(tools, MatchingJudge()), 3)
    assert measured.steps[0].score == pytest.approx(expected)
    assert measured.steps[0].variables == ("?x",)
    assert measured.known == {"Ada": pytest.approx(1 / 3)}


def test_an_answer_that_is_no_node_of_the_graph_is_no_distance_away(tools):
    """Such as a year that the query computes."""
    turns = [query(PARENT, "1815"), query(BORN, "1816")]
    measured = measure(about("1815"), turns, Instruments(tools, MatchingJudge()), 3)
    assert [step.score for step in measured.steps] == [1.0, 0.0]


def test_the_distance_of_what_is_an_answer_is_not_asked_for(tools):
    """Virtuoso fails at some literals that are its own answers, such as coordinates."""

    class Refusing:
        def execute(self, kg, actions, *, graph=None):
            assert all("1788" not in action.arguments["set_a"] for action in actions)
            return tools.execute(kg, actions, graph=graph)

    turns = [query(PARENT, "Byron"), query(BORN, "1788")]
    measured = measure(about("1788"), turns, Instruments(Refusing(), MatchingJudge()), 3)
    assert [step.score for step in measured.steps] == pytest.approx([2 / 3, 1.0])


def test_an_answer_that_the_graph_calls_otherwise_is_as_far_as_the_entity_of_its_id(tools):
    question = replace(about("Lord Byron"), names=(("Lord Byron", "Byron"),))
    measured = measure(question, [query(PARENT, "Notes")], Instruments(tools, MatchingJudge()), 3)
    assert measured.known == {"Ada": pytest.approx(2 / 3)}
    assert measured.steps[0].score == pytest.approx(1 / 3)


def test_the_nearest_of_very_many_answers_counts_like_that_of_few(tools):
    many = about(*(f"Canto of {number}" for number in range(1200)), "1788")
    assert measure(many, [], Instruments(tools, MatchingJudge()), 3).known == {"Ada": pytest.approx(1 / 3)}


def test_what_finds_nothing_has_no_score(tools):
    turns = [query(PARENT), query(PARENT, code="KG_FORMAT_ERROR"), turn(1, 2, status=Status.UNPARSABLE)]
    measured = measure(about("1788"), turns, Instruments(tools, MatchingJudge()), 3)
    assert [step.score for step in measured.steps] == [None, None, None]
    assert measured.steps[2].command is Command.NONE


def test_one_query_written_twice_is_the_same_query(tools):
    turns = [query(PARENT, "Byron"), query(PARENT.replace(" ", "\n ") + " # again", "Byron")]
    assert score(tools, about("1788"), turns).turn_rewards == pytest.approx((0.7, -0.5))


ALL = asked("<e:Byron> <r:wrote> ?x")
LONGEST = asked("<e:Byron> <r:wrote> ?x . ?x <r:lines> ?n") + " ORDER BY DESC(?n) LIMIT 1"
CANTOS = ("Canto 1", "Canto 2", "Canto 3")


def test_under_a_superlative_a_superset_lies_one_edge_away(tools):
    turns = [query(ALL, *CANTOS), query(LONGEST, "Canto 3")]
    measured = measure(about("Canto 3"), turns, Instruments(tools, MatchingJudge()), 3)
    assert [step.score for step in measured.steps] == [pytest.approx(2 / 3), 1.0]
    assert score(tools, about("Canto 3"), turns).turn_rewards == pytest.approx((0.7, 0.7))
    # Where no extreme is asked for, a superset holds the answers, at distance 0.
    (alone,) = measure(about("Canto 3"), turns[:1], Instruments(tools, MatchingJudge()), 3).steps
    assert alone.score == 1.0


COUNTED = asked("<e:Byron> <r:wrote> ?x", "(COUNT(DISTINCT ?x) AS ?n)")


@pytest.mark.parametrize(("gold", "expected"), [("3", 1.0), ("4", 0.0)])
def test_a_count_is_right_if_what_it_counts_is_as_many_as_the_answer_says(tools, gold, expected):
    question = about(gold)
    (step,) = measure(question, [query(COUNTED, "3")], Instruments(tools, MatchingJudge()), 3).steps
    assert (step.score, step.counts) == (expected, True)
    assert score(tools, question, [query(COUNTED, "3")]).turn_rewards == pytest.approx(
        (0.1 + 0.6 * expected,)
    )


def test_the_right_count_is_progress_whatever_came_before():
    assert progress(sparql("a", 1.0), sparql("b", 1.0, counts=True)) == [1, 1]


@pytest.mark.parametrize(
    ("query", "stripped"),
    [
        ("SELECT (COUNT(DISTINCT ?x) AS ?n) WHERE { ?x ?y ?z }", "SELECT DISTINCT ?x WHERE { ?x ?y ?z }"),
        ("select count(?x) { ?x ?y ?z }", "SELECT  ?x { ?x ?y ?z }"),
        ("PREFIX a: <b:> SELECT (COUNT(*) as ?n) { ?x ?y ?z }", "PREFIX a: <b:> SELECT  * { ?x ?y ?z }"),
        ("SELECT ?x WHERE { ?x ?y ?z }", None),
        ("SELECT ?y (COUNT(?x) AS ?n) WHERE { ?x ?y ?z } GROUP BY ?y", None),
        ("SELECT (COUNT(?x) AS ?n) WHERE { ?x ?y ?z } GROUP BY ?y", None),
    ],
)
def test_a_count_is_stripped(query, stripped):
    assert without_count(query) == stripped


def test_a_graph_that_cannot_be_reached_is_no_distance(tools):
    class Overloaded:
        def execute(self, kg, actions, *, graph=None):
            return [Failure(ErrorCode.SERVER_ERROR, ErrorKind.OVERLOADED, "busy") for _ in actions]

    with pytest.raises(GraphUnavailableError, match="busy"):
        score(Overloaded(), about("1788"), [query(PARENT, "Byron")])


def test_a_distance_that_was_not_measured_is_unknown_and_not_0():
    class Failing:
        def execute(self, kg, actions, *, graph=None):
            return [Failure(ErrorCode.SERVER_ERROR, ErrorKind.QUERY_FAILED, "too large") for _ in actions]

    with pytest.raises(JudgeUnavailableError, match=r"too large$"):  # more time would not help
        score(Failing(), about("1788"), [query(PARENT, "Byron")])


def test_a_distance_that_an_endpoint_did_not_tell_in_time_is_told_within_the_recipe_s_time():
    server = SparqlServer("@prefix : <urn:e:> . :Ada :parent :Byron .")
    store = EndpointStore(Endpoint(server.url, deadline_s=0.8), version="v")
    slow = LocalGraphTools(FixedGraphs({"people": store}), deadline_s=0.8, longest_s=60)
    question = Question("q", "?", ("urn:e:Byron",), ("urn:e:Ada",), "people")

    def answer(request):
        if "<urn:e:Ada> ?p ?x" in request.form["query"]:
            time.sleep(2.0)
        server.execute(request)

    server.answer_with(answer)
    try:
        with pytest.raises(JudgeUnavailableError, match=r"0\.8 s.*; a longer graph\.query_timeout_s"):
            measure(question, [], Instruments(slow, MatchingJudge()), 3)
        longer = GraphTerms(query_timeout_s=60).over(slow)
        measured = measure(question, [], Instruments(longer, MatchingJudge()), 3)
        assert list(measured.known.values()) == [pytest.approx(2 / 3)]
    finally:
        store.close()
        server.stop()


@pytest.mark.parametrize(
    "gold",
    [
        {"sparql": "SELECT ?x WHERE { ?x <r:lines> ?n } ORDER BY DESC(?n) LIMIT 1"},
        {"form": "(ARGMAX work lines)"},
        {"sparql": "SELECT (MAX(?n) AS ?x) WHERE { ?y <r:lines> ?n }"},
    ],
)
def test_a_superlative_is_known_by_its_gold_program_before_any_branch_has_solved_it(tools, gold):
    """F.8: the full candidate set, without the constraint, is one step from the answer."""
    candidates = query(asked("<e:Byron> <r:wrote> ?x"), "Canto 1", "Canto 2", "Canto 3")
    superlative, plain = replace(about("Canto 3"), **gold), replace(about("Canto 3"), sparql=BORN)
    instruments = Instruments(tools, MatchingJudge())
    assert measure(superlative, [candidates], instruments, 3).steps[0].score == pytest.approx(2 / 3)
    assert measure(plain, [candidates], instruments, 3).steps[0].score == 1.0


def test_a_step_of_a_tree_has_the_best_outcome_of_the_episodes_through_it(tools):
    """Question → node → (query that advances → right answer | wrong answer), and a failed query."""

    def step(parent, at, status=None, answers=()):
        return Step(parent, (0,), replace(at, start=0, end=0, logprobs=()), status, answers)

    tree = Tree(
        (0,),
        (
            step(None, around("Ada")),
            step(None, query(PARENT), Status.ACTION_ERROR),
            step(0, query(PARENT, "Byron")),
            step(0, LAST, Status.ANSWERED, ("1900",)),
            step(2, LAST, Status.ANSWERED, ("1788",)),
            step(2, query(BORN, "1788")),  # a cap ended the tree here
        ),
        sampled=8,
    )
    scored = REWARD.score_tree("t1", about("1788"), tree, Instruments(tools, MatchingJudge()))
    assert scored.rewards == pytest.approx((0.4, -0.5, 1.0, 0.1, 0.4, 0.7))
    assert [(group.id, group.steps) for group in scored.groups] == [
        ("t1/0", (0, 1)),
        ("t1/1", (2, 3)),
        ("t1/3", (4,)),
    ]
    assert [member.components["f1"] for member in scored.members] == [0.0, 0.0, 1.0]
    assert scored.members[2].turn_rewards == pytest.approx((0.4, 1.0, 0.4))


def path(steps, *found):
    followed = ExecutedAction(FOLLOW_PATH, {"entity": "Ada", "path": steps}, items=found, labels=found)
    return turn(1, 2, actions=(followed,))


def test_a_path_that_was_followed_is_measured_as_a_query_is(tools):
    """It is no SPARQL: it has no variables to be known by, and is the same as itself alone."""
    turns = [path('["parent"]', "Byron"), path('["parent", "born"]', "1788"), path('["parent"]')]
    steps = measure(about("1788"), turns, Instruments(tools, MatchingJudge()), 3).steps
    assert [step.command for step in steps] == [Command.SPARQL] * 3
    assert [step.score for step in steps] == [pytest.approx(2 / 3), 1.0, None]
    assert [step.variables for step in steps] == [()] * 3
    assert steps[0].subject == steps[2].subject != steps[1].subject


class Untouched:
    """Tools that nobody may use."""

    def execute(self, kg, actions, *, graph=None):
        raise AssertionError(f"{kg} was asked {actions}")


def test_without_gold_answers_nothing_is_near_and_the_graph_is_not_asked(tools):
    steps = measure(about(), [query(PARENT, "Byron")], Instruments(Untouched(), MatchingJudge()), 3).steps
    assert [step.score for step in steps] == [0.0]


def test_under_a_superlative_what_misses_an_answer_is_measured_by_its_distance(tools):
    turns = [query(PARENT, "Byron"), query(LONGEST, "Canto 3")]
    first, second = measure(about("Canto 3"), turns, Instruments(tools, MatchingJudge()), 3).steps
    assert first.score == pytest.approx(2 / 3)  # Byron wrote it
    assert second.score == 1.0


def test_another_action_is_neither_a_node_nor_a_query(tools):
    other = turn(1, 2, actions=(ExecutedAction("find_entities", {"text": "Ada"}),))
    [step] = measure(about("1788"), [other], Instruments(tools, MatchingJudge()), 3).steps
    assert (step.command, step.subject, step.score) == (Command.NONE, "", None)
