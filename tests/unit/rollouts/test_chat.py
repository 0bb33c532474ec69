"""Every dialect in its chat form, played over HTTP by a scripted model: gold, and the known failures."""

from __future__ import annotations

import json
import threading
import time

import pytest
from fastapi import Response

from kbqa.chat import ChatModel
from kbqa.environment import Budget
from kbqa.errors import PolicyRefusedError, PolicyUnavailableError
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.openai import OpenAiPolicy
from kbqa.protocols import PROTOCOLS
from kbqa.rollouts import ChatAgent, linear_rollout
from kbqa.trajectory import Question, Status
from tests.chat_server import calls, serve
from tests.unit.episodes import Heard

TRIPLES = [("Ada", "parent", "Byron"), ("Byron", "born", "1788"), ("Eve", "born", "1900")]
QUESTION = Question("q", "when was the parent of Ada born ?", ("1788",), ("Ada",), "people")
QUERY = "SELECT ?x WHERE { <urn:kbqa:e:Ada> <urn:kbqa:r:parent> ?p . ?p <urn:kbqa:r:born> ?x }"
BUDGET = Budget(max_turns=4, max_tokens=100_000, max_turn_tokens=200, max_observation_tokens=100)


@pytest.fixture(scope="module")
def tools():
    return LocalGraphTools(FixedGraphs({"people": OxigraphStore.from_triples(TRIPLES)}))


@pytest.fixture(scope="module")
def server():
    with serve() as chat:
        yield chat


@pytest.fixture
def play(server, tools):
    """Plays one episode of a dialect in which the model says `turns`."""
    server.asked.clear()
    policies = []

    def run(name, *turns, n=1, budget=BUDGET, native_tools=True, attempts=1, question=QUESTION, **options):
        if turns:
            server.says(*turns)
        policies.append(OpenAiPolicy(ChatModel("m", server.url, attempts=attempts, back_off_s=0.01)))
        agent = ChatAgent(policies[-1], PROTOCOLS.build(name, {}), tools, budget, native_tools)
        return linear_rollout(agent, question, n, 0.0, **options)

    yield run
    for policy in policies:
        policy.close()


def call(sparql):
    return calls("ExecuteSPARQL", json.dumps({"sparql": sparql}), "I query.")


def said(command):
    return f"<think>t</think>{command}"


GOLD = {
    "kg_r1": [
        said('<kg-query>get_tail_entities("Ada", "parent")</kg-query>'),
        said('<kg-query>get_tail_entities("Byron", "born")</kg-query>'),
        said("<answer>1788</answer>"),
    ],
    "kbqa_r1": [
        said("<action>\nFind_relation [ Ada | parent ]\nFind_relation [ expression1 | born ]\n</action>"),
        said("<answer>expression2</answer>"),
    ],
    "knowcoder_a1": [call(QUERY), said(r'<answer> the answer is \boxed{["1788"]} </answer>')],
    "interactive_parsing": [
        said("<node>Ada</node>"),
        said(f"<sparql>{QUERY}</sparql>"),
        said(r"<answer>\boxed{?x}</answer>"),
    ],
    "sparql_refinement": [said(f"<query>{QUERY}</query>"), said("<answer>1788</answer>")],
}


@pytest.mark.parametrize("name", GOLD)
def test_gold_is_answered(play, server, name):
    heard = Heard()
    [trajectory] = play(name, *GOLD[name], listener=heard)
    assert (trajectory.status, trajectory.answers) == (Status.ANSWERED, ("1788",))
    assert trajectory.answer_ids == (("1788",),)  # it was retrieved
    assert tuple(turn for _, turn in heard.turns) == trajectory.turns
    assert all(turn.well_formed and turn.thought for turn in trajectory.turns)
    assert all(turn.observation and turn.actions for turn in trajectory.turns[:-1])
    # Tokens are those that the server counted; nothing can be trained on them.
    assert trajectory.token_ids == ()
    assert [turn.end - turn.start for turn in trajectory.turns] == [5] * len(GOLD[name])
    messages = [1 + (name != "sparql_refinement") + 2 * k for k in range(len(GOLD[name]))]
    assert [turn.start for turn in trajectory.turns] == [10 * read for read in messages]
    assert trajectory.policy_versions == ("scripted-1",)


@pytest.mark.parametrize("name", GOLD)
def test_a_conversation_alternates_and_only_grows(play, server, name):
    play(name, *GOLD[name])
    before = []
    for body in server.asked:
        messages = body["messages"]
        assert messages[: len(before)] == before
        roles = [message["role"] for message in messages]
        told = roles.index("user") + 1  # one dialect has no system message
        assert roles[:told] == ["system", "user"][-told:]
        assert all(
            role == ("assistant" if k % 2 == 0 else "tool") or role == "user"
            for k, role in enumerate(roles[told:])
        )
        before = messages
    protocol = PROTOCOLS.build(name, {})
    *systems, user = (message["content"] for message in before[:told])
    assert QUESTION.text in user
    assert not any(QUESTION.text in system for system in systems)
    system = next(iter(systems), user)
    assert tuple(server.asked[0]["stop"]) == protocol.stop
    commands = [
        stop.replace("</", "<") for stop in protocol.stop if stop not in ("</SPARQL>", "</tool_call>")
    ]
    assert all(command in system for command in commands)


@pytest.mark.parametrize("name", GOLD)
def test_the_example_in_the_instruction_is_in_the_dialect(name):
    """What the instruction shows of the model's own turns, its dialogue understands."""
    dialogue = PROTOCOLS.build(name, {}).begin(QUESTION, 6)
    opening = dialogue.opening(native_tools=True)
    system = opening.system or opening.user
    shown = [line.removeprefix("you: ") for line in system.split("\n") if "<think>" in line and "</" in line]
    turns = [turn for turn in shown if turn.startswith("<think>")]
    assert turns
    if name == "kbqa_r1":  # its actions stand on lines of their own
        turns = turns[1:]
    for turn in turns:
        whole = turn if name != "sparql_refinement" else turn + "<answer>x</answer>"
        assert dialogue.reply(whole).well_formed, turn


def test_function_calls_are_native(play, server):
    play("knowcoder_a1", *GOLD["knowcoder_a1"])
    assert [tool["function"]["name"] for tool in server.asked[0]["tools"]] == [
        "SearchGraphPatterns",
        "ExecuteSPARQL",
        "SearchTypes",
    ]
    assistant, tool = server.asked[1]["messages"][2:]
    assert assistant["tool_calls"][0]["id"] == tool["tool_call_id"] == "c1"
    assert (tool["role"], tool["content"]) == ("tool", '<tool_response>["1788"]</tool_response>')
    assert "<tool_call>" not in assistant["content"]


def test_a_model_without_function_calls_writes_them(play, server):
    written = said(
        '<tool_call>{"name": "ExecuteSPARQL", "arguments": ' + json.dumps({"sparql": QUERY}) + "}</tool_call>"
    )
    [trajectory] = play("knowcoder_a1", written, GOLD["knowcoder_a1"][1], native_tools=False)
    assert trajectory.answers == ("1788",)
    assert "tools" not in server.asked[0]
    assert "SearchGraphPatterns" in server.asked[0]["messages"][0]["content"]
    assert server.asked[1]["messages"][3]["role"] == "user"


def test_a_call_that_is_no_json_is_told_so_as_a_tool(play, server):
    [trajectory] = play("knowcoder_a1", calls("ExecuteSPARQL", "{oops"), GOLD["knowcoder_a1"][1])
    assert trajectory.turns[0].status is Status.UNPARSABLE
    assert "one JSON object" in trajectory.turns[0].observation
    assert server.asked[1]["messages"][3]["tool_call_id"] == "c1"


BROKEN = {
    "kg_r1": said('<kg-query>get_tail_entities("Ada", "loves")</kg-query>'),
    "kbqa_r1": said("<action>Find_relation [ Nobody | born ]</action>"),
    "knowcoder_a1": call("SELECT ?x WHERE {"),
    "interactive_parsing": said("<sparql>SELECT ?x WHERE {</sparql>"),
    "sparql_refinement": said("<query>SELECT ?x WHERE {</query>"),
}


@pytest.mark.parametrize("name", GOLD)
def test_a_failed_action_is_told_and_survived(play, name):
    [trajectory] = play(name, BROKEN[name], *GOLD[name])
    assert trajectory.turns[0].status is Status.ACTION_ERROR
    assert trajectory.turns[0].observation
    assert trajectory.answers == ("1788",)


@pytest.mark.parametrize("name", GOLD)
def test_a_turn_that_is_none_costs_a_turn_or_the_episode(play, name):
    [trajectory] = play(name, "hm", GOLD[name][-1])
    assert trajectory.turns[0].status is Status.UNPARSABLE
    fatal = name == "sparql_refinement"
    assert trajectory.status is (Status.UNPARSABLE if fatal else Status.ANSWERED)
    assert len(trajectory.turns) == (1 if fatal else 2)


@pytest.mark.parametrize("name", GOLD)
def test_turns_are_bounded(play, server, name):
    [trajectory] = play(name, GOLD[name][0])
    assert trajectory.status is Status.OUT_OF_TURNS
    assert len(server.asked) == len(trajectory.turns) == BUDGET.max_turns


@pytest.mark.parametrize("tag", ["information", "query_result", "tool_response"])
@pytest.mark.parametrize("name", GOLD)
def test_what_a_model_makes_up_is_no_observation(play, name, tag):
    [trajectory] = play(
        name, f"<think>t</think><{tag}>1788</{tag}>{GOLD[name][-1].removeprefix('<think>t</think>')}"
    )
    assert not trajectory.turns[0].well_formed
    assert trajectory.turns[0].observation == ""
    assert trajectory.answer_ids in ((), ((),))


def test_what_follows_a_command_is_cut(play, server):
    """A server may not know stop strings: what comes after the first of them was not said."""
    forged = GOLD["kg_r1"][0] + "<information>Byron</information><answer>Eve</answer>"
    server.script = lambda body: forged if len(body["messages"]) == 2 else "<answer>x</answer>"
    first = play("kg_r1")[0].turns[0]
    assert first.text == GOLD["kg_r1"][0]
    assert "Byron" in first.observation


def test_tokens_are_bounded_by_the_servers_count(play):
    [trajectory] = play("kg_r1", GOLD["kg_r1"][0], budget=Budget(9, 40, 20, 100))
    assert trajectory.status is Status.OUT_OF_TOKENS
    assert len(trajectory.turns) == 2  # 20 + 5 tokens, then 40 + 5


def test_a_long_observation_is_cut_and_closed(play):
    [trajectory] = play("kg_r1", GOLD["kg_r1"][0], budget=Budget(2, 1000, 20, 2))
    assert trajectory.turns[0].observation == "<information>Tail ent</information>"


def test_a_context_without_room_ends_the_episode(play):
    [trajectory] = play("kg_r1", GOLD["kg_r1"][0], Response('{"code": "context_length_exceeded"}', 400))
    assert trajectory.status is Status.OUT_OF_TOKENS
    assert len(trajectory.turns) == 2


def test_a_reasoning_models_thought_is_its_thought(play):
    turn = {"content": "<answer>1788</answer>", "reasoning_content": "thinking"}
    [trajectory] = play("kg_r1", turn)
    assert trajectory.turns[0].thought == "thinking"
    assert trajectory.turns[0].well_formed


def test_runs_are_asked_together_and_end_apart(play, server):
    answers = iter(["<answer>a</answer>", GOLD["kg_r1"][0], "<answer>b</answer>"])
    lock = threading.Lock()

    def script(body):
        with lock:
            return next(answers)

    server.script = script
    trajectories = play("kg_r1", n=2, seed=1)
    assert sorted(len(trajectory.turns) for trajectory in trajectories) == [1, 2]
    assert sorted(t.answers for t in trajectories) == [("a",), ("b",)]


def test_an_episode_that_is_cancelled_ends_within_its_turn(play, server):
    cancelled, heard = threading.Event(), Heard()

    def script(body):
        if len(body["messages"]) == 2:
            return GOLD["kg_r1"][0]
        cancelled.set()
        return {"stall": True}

    server.script = script
    [trajectory] = play("kg_r1", cancelled=cancelled, listener=heard)
    assert trajectory.status is Status.TIMED_OUT
    assert (len(trajectory.turns), [run for run, _ in heard.turns]) == (1, [0])
    [trajectory] = play("kg_r1", cancelled=cancelled)
    assert trajectory.turns == ()


def test_an_episode_ends_at_its_deadline(play, server):
    server.stalls()
    [trajectory] = play("kg_r1", deadline=time.monotonic() + 0.2)
    assert (trajectory.status, trajectory.turns) == (Status.TIMED_OUT, ())


def test_a_policy_that_fails_is_an_error_of_policies(play):
    with pytest.raises(PolicyUnavailableError, match="no reply in 2 attempts"):
        play("kg_r1", Response("down", 503), attempts=2)
    with pytest.raises(PolicyRefusedError, match="401"):
        play("kg_r1", Response("who are you", 401))
