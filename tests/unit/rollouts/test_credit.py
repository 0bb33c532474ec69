"""What a linear group credits, in every dialect, whatever the policy says: no token more and none less."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.advantages import Advantage
from kbqa.environment import Budget
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import PROTOCOLS
from kbqa.rollouts import Agent, linear_rollout
from kbqa.trajectory import Group, RewardedTrajectory
from tests.unit.episodes import question
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

CODEC = make_codec()
QUERY = "SELECT ?x WHERE { <urn:kbqa:e:Ada> <urn:kbqa:r:parent> ?x }"
COMMANDS = {
    "kg_r1": [
        '<kg-query>get_tail_entities("Ada", "parent")</kg-query>',
        "<kg-query>f(",
        "<answer>Byron</answer>",
    ],
    "kbqa_r1": ["<action>Find_relation [ Ada | parent ]</action>", "<answer>expression1</answer>"],
    "knowcoder_a1": [
        f'<tool_call>{{"name": "ExecuteSPARQL", "arguments": {{"sparql": "{QUERY}"}}}}</tool_call>',
        r'<answer>\boxed{["Byron"]}</answer>',
    ],
    "interactive_parsing": ["<node>Ada</node>", f"<sparql>{QUERY}</sparql>", r"<answer>\boxed{?x}</answer>"],
    "sparql_refinement": [f"<query>{QUERY}</query>", "<query>SELECT</query>", "<answer>Byron</answer>"],
}


@pytest.fixture(scope="module")
def tools():
    store = OxigraphStore.from_triples([("Ada", "parent", "Byron"), ("Ada", "parent", "Annabella")])
    return LocalGraphTools(FixedGraphs({"world": store}))


@pytest.mark.parametrize("name", COMMANDS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_mask_covers_exactly_the_tokens_that_the_group_credits(tools, name, data):
    """And each turn's prompt, as the policy was given it, extends the last one token by token."""
    commands = [f"<think>t</think>{command}" for command in COMMANDS[name]]
    turns = st.sampled_from([*commands, COMMANDS[name][0], "nothing", ""]) | st.text(
        "<think>/answer ", max_size=20
    )
    said = cycle(data.draw(st.lists(turns, min_size=1, max_size=8)))
    policy = ScriptedPolicy(CODEC, lambda _: next(said))
    budget = Budget(3, data.draw(st.integers(50, 2000)), data.draw(st.integers(1, 200)), 60)
    agent = Agent(policy, CODEC, PROTOCOLS.build(name, {"prompt": "brief"}), tools, budget)
    trajectories = linear_rollout(agent, question(), data.draw(st.integers(1, 3)), 1.0)
    prompts = set(map(tuple, policy.prompts))
    for trajectory in trajectories:
        for turn in trajectory.turns:
            assert trajectory.token_ids[: turn.start] in prompts
            assert CODEC.decode(trajectory.token_ids[turn.start : turn.end]) == turn.text
            assert len(turn.logprobs) == turn.end - turn.start

    reward = st.sampled_from([-1.0, 0.0, 0.5, 1.0])
    members = tuple(
        RewardedTrajectory(t, tuple(data.draw(reward) for _ in t.turns), data.draw(reward))
        for t in trajectories
    )
    advantage = Advantage(data.draw(st.sampled_from(["group", "turn", "turn_and_outcome"])))
    group = Group("g", question(), members)
    credited = [(m, row) for m, row in zip(members, advantage.of_turns(group), strict=True) if row]
    for (member, row), sample in zip(credited, advantage.samples(group), strict=True):
        owner = {
            position: index
            for index, turn in enumerate(member.trajectory.turns)
            for position in range(turn.start, turn.end)
        }
        assert sample.token_ids == member.trajectory.token_ids
        length = range(len(sample.token_ids))
        assert sample.mask == tuple(position in owner for position in length)
        assert sample.advantages == tuple(row[owner[p]] if p in owner else 0.0 for p in length)
        written = [logprob for turn in member.trajectory.turns for logprob in turn.logprobs]
        assert [logprob for logprob, m in zip(sample.logprobs, sample.mask, strict=True) if m] == written
