"""Many questions at a time: all are answered, each as if it were alone, and few are under way at once."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from kbqa.environment import Budget
from kbqa.errors import PolicyUnavailableError
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols.kg_r1 import KgR1
from kbqa.rollouts import Agent
from kbqa.rollouts.many import many_rollouts
from kbqa.trajectory import Status
from tests.unit.episodes import question
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

CODEC = make_codec()
BUDGET = Budget(max_turns=4, max_tokens=600, max_turn_tokens=100, max_observation_tokens=60)
PARENTS = {"Ada": "Byron", "Eve": "Adam", "Io": "Inachus"}


class Counted(ScriptedPolicy):
    """Counts the calls that it has at a time; none returns before it once had as many as `together`."""

    def __init__(self, script, together=1):
        super().__init__(CODEC, script)
        self.together, self.changed = together, threading.Condition()
        self.now = self.most = 0
        self.seeds = []

    def generate(self, prompts, params, **options):
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.seeds.append(params.seed)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.together, timeout=10)
        time.sleep(0.01)  # for a call too many to be seen
        completions = super().generate(prompts, params, **options)
        with self.changed:
            self.now -= 1
        return completions


def asks_then_answers(prompt):
    topic = next(name for name in PARENTS if f"of {name}" in prompt)
    if "<information>" in prompt:
        return f"<think>t</think><answer>{PARENTS[topic]}</answer>"
    return f'<think>t</think><kg-query>get_tail_entities("{topic}", "parent")</kg-query>'


def agent_of(script, budget=BUDGET, together=1):
    graphs = {
        "world": OxigraphStore.from_triples([("Ada", "parent", "Byron"), ("Eve", "parent", "Adam")]),
        "myths": OxigraphStore.from_triples([("Io", "parent", "Inachus")]),
    }
    policy = Counted(script, together)
    return Agent(policy, CODEC, KgR1("brief"), LocalGraphTools(FixedGraphs(graphs)), budget), policy


def play(questions, width, script=asks_then_answers, **options):
    agent, policy = agent_of(script, **options)
    return list(many_rollouts(agent, questions, 0.0, width=width)), policy


def about(topic, kg="world"):
    return replace(question(topic=topic, text=f"who is the parent of {topic} ?"), kg=kg)


def test_each_question_is_answered_from_its_own_graph():
    questions = [about("Ada"), about("Io", "myths"), about("Eve"), about("Ada")]
    found, policy = play(questions, width=3)
    answers = {place: trajectory.answers for place, trajectory in found}
    assert answers == {0: ("Byron",), 1: ("Inachus",), 2: ("Adam",), 3: ("Byron",)}
    assert all(trajectory.turns[0].actions[0].succeeded for _, trajectory in found)


def test_no_more_are_under_way_than_there_is_room_for():
    found, policy = play([about("Ada")] * 10, width=4, together=4)
    assert sorted(place for place, _ in found) == list(range(10))
    assert policy.most == 4


def test_an_episode_that_ends_makes_room_at_once():
    lengthy = threading.Event()

    def script(prompt):
        if "of Ada" in prompt:
            assert lengthy.wait(10)
        elif "of Io" in prompt:
            lengthy.set()  # the first is not over, and the third begins
        return "<think>t</think><answer>Byron</answer>"

    found, _ = play([about("Ada"), about("Eve"), about("Io", "myths")], width=2, script=script)
    assert sorted(place for place, _ in found) == [0, 1, 2]


def test_nothing_goes_on_when_nobody_listens():
    questions = (about("Ada") for _ in range(10_000))
    agent, _ = agent_of(asks_then_answers)
    rollouts = many_rollouts(agent, questions, 0.0, width=2)
    next(rollouts)
    rollouts.close()
    assert sum(1 for _ in questions) > 9_000


def test_an_error_ends_all():
    def script(prompt):
        raise PolicyUnavailableError("the policy engine is closed")

    with pytest.raises(PolicyUnavailableError):
        play([about("Ada")] * 5, width=2, script=script)


def test_samples_are_repeatable_and_differ_from_question_to_question():
    def seeds(seed):
        agent, policy = agent_of(asks_then_answers)
        list(many_rollouts(agent, [about("Ada")] * 3, 1.0, width=3, seed=seed))
        return sorted(policy.seeds)

    assert seeds(1) == seeds(1) != seeds(2)
    assert len(set(seeds(1))) == 6


def test_a_question_that_leaves_no_room_ends_before_its_first_turn():
    short = replace(BUDGET, max_tokens=60)
    found, policy = play([replace(about("Ada"), text="why " * 200), about("Ada")], width=1, budget=short)
    assert found[0][1].status is Status.OUT_OF_TOKENS
    assert found[0][1].turns == ()
    assert found[1][0] == 1


def test_no_question_asks_nothing():
    assert play([], width=4)[0] == []
