"""Baselines against a real HTTP server that speaks chat completions."""

from __future__ import annotations

import pytest

from kbqa.chat import ChatModel
from kbqa.evaluation.baselines import BASELINES, baseline_player, read_answers, read_query
from kbqa.evaluation.failures import FailureClass, failure
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.openai import OpenAiPolicy
from kbqa.rollouts.many import many_rollouts
from kbqa.trajectory import Question, Status
from tests.chat_server import serve
from tests.iri_graphs import WIKIDATA

TRIPLES = [("Ada", "parent", "Byron"), ("Ada", "parent", "Annabella"), ("Byron", "born", "1788")]
QUESTION = Question("q", "who are the parents of Ada ?", ("Byron", "Annabella"), ("Ada",), "people")
QUERY = "SELECT ?x WHERE { <urn:kbqa:e:Ada> <urn:kbqa:r:parent> ?x }"


@pytest.fixture(scope="module")
def tools():
    graphs = FixedGraphs({"people": OxigraphStore.from_triples(TRIPLES)})
    return LocalGraphTools(graphs, deadline_s=120)  # on a busy machine


@pytest.fixture(scope="module")
def server():
    with serve() as chat:
        yield chat


@pytest.fixture
def play(server, tools):
    """Plays an episode of a baseline in which the model says `turns`."""
    server.asked.clear()
    policies = []

    def run(name, *turns, run=0):
        server.says(*turns)
        policies.append(OpenAiPolicy(ChatModel("m", server.url, attempts=1, extra=BASELINES[name].extra)))
        player, temperature = baseline_player(name, policies[-1], tools, run)
        [(_, trajectory)] = many_rollouts(player, [QUESTION], temperature, seed=1)
        return trajectory

    yield run
    for policy in policies:
        policy.close()


def test_vanilla_asks_once_without_the_graph(play, server):
    trajectory = play("vanilla", 'Answers: ["Byron", "Annabella"]')
    assert (trajectory.status, trajectory.answers) == (Status.ANSWERED, ("Byron", "Annabella"))
    assert len(trajectory.turns) == 1
    assert list(trajectory.actions) == []
    [body] = server.asked
    assert (body["temperature"], "top_p" in body) == (0, False)
    system, user = (message["content"] for message in body["messages"])
    assert "Answers: [" in system
    assert "Reasoning" not in system
    assert user == f"Question: {QUESTION.text}"


def test_cot_reasons_after_two_examples(play, server):
    trajectory = play("cot", 'Reasoning: her father was a poet.\nAnswers: ["Byron"]')
    assert (trajectory.answers, trajectory.turns[0].thought) == (("Byron",), "her father was a poet.")
    system = server.asked[0]["messages"][0]["content"]
    assert system.count("\nQuestion: ") == system.count("\nReasoning: ") == 2


def test_zero_shot_cot_reasons_first_and_is_shown_nothing(play, server):
    """KG-R1, appendix C.1: "in a zero-shot setting"."""
    trajectory = play("zero-shot-cot", 'Reasoning: her father was a poet.\nAnswers: ["Byron"]')
    assert (trajectory.answers, trajectory.turns[0].thought) == (("Byron",), "her father was a poet.")
    [body] = server.asked
    system = body["messages"][0]["content"]
    assert "step by step" in system
    assert "Question:" not in system
    assert body["temperature"] == 0


def test_one_shot_executes_one_query(play, server):
    trajectory = play("one-shot", f"```sparql\n{QUERY}\n```")
    assert trajectory.status is Status.ANSWERED
    assert set(trajectory.answers) == {"Byron", "Annabella"}
    assert set(trajectory.answer_ids) == {("Byron",), ("Annabella",)}
    assert len(trajectory.turns) == len(server.asked) == 1
    [action] = trajectory.actions
    assert (action.name, action.arguments["query"], action.code) == ("execute_sparql", QUERY, None)
    assert "Byron" in trajectory.turns[0].observation
    [body] = server.asked
    assert (body["temperature"], body["top_p"]) == (0.2, 0.95)
    assert "<urn:kbqa:e:Ada>" in body["messages"][1]["content"]


def test_one_query_and_many_are_told_the_same_of_the_entities(server, tmp_path):
    """Else the difference between Learning-to-Refine's B2 and B3 were one of labels."""
    file = tmp_path / "wikidata.ttl"
    file.write_text(WIKIDATA)
    catalog = GraphCatalog(tmp_path)
    catalog.load("wikidata", file)
    tools = LocalGraphTools(catalog, deadline_s=120)
    asked = Question("q", "who painted the Mona Lisa ?", ("Q762",), ("Q12418",), "wikidata")
    query = "SELECT ?x WHERE { wd:Q12418 wdt:P170 ?x }"
    turns = {
        "one-shot": (query,),
        "iterative": (f"<think>t</think><query>{query}</query>", "<think>t</think><answer>x</answer>"),
    }
    policy, told = OpenAiPolicy(ChatModel("m", server.url, attempts=1)), {}
    for name, said in turns.items():
        server.asked.clear()
        server.says(*said)
        player, temperature = baseline_player(name, policy, tools, 0)
        [(_, trajectory)] = many_rollouts(player, [asked], temperature, seed=1)
        user = server.asked[0]["messages"][-1]["content"]
        told[name] = user[user.rindex("Question: ") :].strip()
        assert trajectory.status is Status.ANSWERED
        assert [action.arguments["query"] for action in trajectory.actions] == [query]
    policy.close()
    catalog.close()
    assert told["one-shot"] == f"Question: {asked.text}\nEntities: Mona Lisa (wd:Q12418)"
    assert told["iterative"] == told["one-shot"]


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        ("I cannot know that; ask your family.", Status.UNPARSABLE, FailureClass.REFUSED),
        ("```sparql\nSELECT ?x WHERE { broken\n```", Status.ACTION_ERROR, FailureClass.EXECUTION_FAILURE),
        (
            f"```sparql\n{QUERY.replace('parent', 'child')}\n```",
            Status.ANSWERED,
            FailureClass.INCORRECT_LOGIC,
        ),
    ],
)
def test_a_query_that_does_not_answer_fails_in_its_class(play, said, status, expected):
    trajectory = play("one-shot", said)
    assert (trajectory.status, trajectory.answers) == (status, ())
    assert failure(trajectory, correct=False) is expected


def test_iterative_queries_until_it_answers(play, server):
    trajectory = play(
        "iterative",
        f"<think>I ask.</think><query>{QUERY}</query>",
        "<think>There are two.</think><answer>Byron</answer>",
    )
    assert (trajectory.status, trajectory.answers) == (Status.ANSWERED, ("Byron",))
    assert [body["temperature"] for body in server.asked] == [0, 0]
    assert "At most 10 queries" in server.asked[0]["messages"][0]["content"]


def test_further_runs_are_sampled(play, server):
    for name, temperature in (("vanilla", 1.0), ("one-shot", 0.2)):
        play(name, "Answers: []", run=1)
        assert server.asked[-1]["temperature"] == temperature


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ('Answers: ["Byron"]', ("Byron",)),
        ("answers: ['Byron', \"Ada's mother\"]", ("Byron", "Ada's mother")),
        ("Answers: Byron, Annabella.", ("Byron", "Annabella")),
        ('Answers: ["old"]\nno, wait\nAnswers: ["Byron", "Byron"]\n', ("Byron",)),
        ('Answers: [\n  "Byron",\n  "Annabella"\n]', ("Byron", "Annabella")),
        ('Answers: ["a [b] c"]', ("a [b] c",)),
        ("Answers: [1788]", ("1788",)),
        ("Answers: []", ()),
    ],
)
def test_answers_are_read_as_models_write_them(text, answers):
    assert tuple(answer.text for answer in read_answers(text).answers) == answers


@pytest.mark.parametrize("text", ["", "It was Byron.", "[" * 5000])
def test_a_reply_without_answers_is_a_problem(text):
    reply = read_answers(text)
    assert (reply.answers, reply.fatal) == (None, True)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (f"```sparql\n{QUERY}\n```", QUERY),
        (f"Here it is:\n```\n{QUERY}\n```\nI hope that it helps.", QUERY),
        (QUERY, QUERY),
        (f"PREFIX k: <urn:kbqa:e:>\n{QUERY}", f"PREFIX k: <urn:kbqa:e:>\n{QUERY}"),
        ("ASK { ?x ?y ?z }", "ASK { ?x ?y ?z }"),
    ],
)
def test_a_query_is_found_in_what_a_model_writes(text, query):
    [action] = read_query(text).actions
    assert action.arguments == {"query": query}


@pytest.mark.parametrize("text", ["", "Let me select the right answer, then ask for more."])
def test_prose_is_no_query(text):
    assert read_query(text).problem == "no query"
