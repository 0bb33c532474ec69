from dataclasses import replace
from time import monotonic

from kbqa.environment import Budget
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.base import FinishReason
from kbqa.protocols.kg_r1 import KgR1
from kbqa.rollouts import Agent, linear_rollout
from kbqa.trajectory import Status
from tests.unit.episodes import Heard, question
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

CODEC = make_codec()
BUDGET = Budget(max_turns=4, max_tokens=600, max_turn_tokens=100, max_observation_tokens=60)


def play(script, n=1, **options):
    store = OxigraphStore.from_triples([("Ada", "parent", "Byron"), ("Ada", "parent", "Annabella")])
    policy = ScriptedPolicy(CODEC, script)
    agent = Agent(policy, CODEC, KgR1("brief"), LocalGraphTools(FixedGraphs({"world": store})), BUDGET)
    heard = Heard()
    result = linear_rollout(agent, question(), n, 1.0, listener=heard, **options)
    return result, heard, policy


def asks_then_answers(prompt):
    if "<information>" in prompt:
        return "<think>t</think><answer>Annabella, Byron</answer>"
    return '<think>t</think><kg-query>get_tail_entities("Ada", "parent")</kg-query>'


def test_n_trajectories_come_back_whole():
    trajectories, heard, _ = play(asks_then_answers, n=3)
    assert [t.status for t in trajectories] == [Status.ANSWERED] * 3
    assert {t.answers for t in trajectories} == {("Annabella", "Byron")}
    assert [run for run, _ in heard.turns] == [0, 1, 2, 0, 1, 2]
    assert heard.written == [*((run, ["get_tail_entities"]) for run in range(3)), (0, []), (1, []), (2, [])]


def test_observations_are_the_graphs():
    trajectories, _, _ = play(asks_then_answers)
    assert trajectories[0].turns[0].actions[0].labels == ("Annabella", "Byron")


def test_every_prompt_extends_the_one_before():
    _, _, policy = play(asks_then_answers)
    first, second = policy.prompts
    assert second[: len(first)] == first


def test_a_policy_that_never_answers_runs_out_of_turns():
    trajectories, _, _ = play(lambda _: "nothing to say")
    assert trajectories[0].status is Status.OUT_OF_TURNS
    assert len(trajectories[0].turns) == 4


def test_a_deadline_that_has_passed_times_episodes_out():
    trajectories, _, policy = play(asks_then_answers, n=2, deadline=monotonic() - 1)
    assert [t.status for t in trajectories] == [Status.TIMED_OUT] * 2
    assert policy.prompts == []


class Hasty(ScriptedPolicy):
    """The last of several completions is not finished in time."""

    def generate(self, prompts, params, **stopping):
        *whole, last = super().generate(prompts, params, **stopping)
        return [*whole, replace(last, token_ids=(), logprobs=(), finish_reason=FinishReason.ABORTED)]


def test_an_episode_whose_completion_is_not_finished_in_time_has_no_such_turn():
    store = OxigraphStore.from_triples([("Ada", "parent", "Byron")])
    agent = Agent(
        Hasty(CODEC, asks_then_answers),
        CODEC,
        KgR1("brief"),
        LocalGraphTools(FixedGraphs({"world": store})),
        BUDGET,
    )
    heard = Heard()
    trajectories = linear_rollout(agent, question(), 3, 1.0, listener=heard)
    assert [t.status for t in trajectories] == [Status.ANSWERED, Status.TIMED_OUT, Status.TIMED_OUT]
    assert [len(t.turns) for t in trajectories] == [2, 1, 0]
    assert [run for run, _ in heard.turns] == [0, 1, 0]
