"""References for a policy of tokens, which reads them behind its episode and never in it."""

from __future__ import annotations

import re

from kbqa.cold_start.collecting import ReferencedTeacher, SamplingTeacher, Setting, attempt
from kbqa.cold_start.leaks import HINT_MARK
from kbqa.environment import Budget
from kbqa.protocols import KbqaR1
from kbqa.rollouts import Agent
from tests.unit.cold_start.films import ANSWER, BORN, STARRING, THEN_BORN, make_tools, turn
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

BUDGET = Budget(max_turns=6, max_tokens=100_000, max_turn_tokens=300, max_observation_tokens=200)


def test_a_policy_of_tokens_reads_hints_that_are_not_in_its_episode():
    setting, codec = Setting(KbqaR1("brief"), make_tools(), 6), make_codec()
    policy = ScriptedPolicy(
        codec,
        lambda prompt: (
            turn("Next.", re.findall(r"<action>.*?</action>", prompt)[-1])
            if "the next step is" in prompt.rpartition(HINT_MARK)[2]
            else turn("Done.", ANSWER)
        ),
    )
    player = Agent(policy, codec, setting.protocol, setting.tools, BUDGET)
    made = attempt(BORN, ReferencedTeacher(setting, SamplingTeacher(player, 1)), setting)
    policys = [p for p in made.kept[0].passages if p.by_policy]
    said = [p.segments[0].text.partition("</think>")[2] for p in policys]
    assert said == [
        STARRING,
        THEN_BORN,
        ANSWER,
    ]
    assert all(codec.decode(prompt).count(HINT_MARK) == 1 for prompt in policy.prompts)
