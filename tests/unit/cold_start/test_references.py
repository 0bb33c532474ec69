"""References for a policy of tokens, which reads them behind its episode and never in it."""

from __future__ import annotations

import re
from dataclasses import replace

from kbqa.cold_start.collecting import ReferencedTeacher, SamplingTeacher, Setting, attempt
from kbqa.cold_start.leaks import HINT_MARK
from kbqa.cold_start.references import hint, reference_actions
from kbqa.environment import Budget
from kbqa.protocols import KbqaR1
from kbqa.rollouts import Agent
from kbqa.trajectory import Question, Status, Turn
from tests.unit.cold_start.films import ANSWER, BORN, STARRING, THEN_BORN, action, make_tools, turn
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


def test_a_reference_is_read_off_the_form_whatever_it_finds():
    """However many answers it has, and whatever they are: the filter decides on the episode."""
    form = "(AND (JOIN (R starred_actors) Heat) (JOIN (R starred_actors) Ronin))"
    question = Question("q", "who starred in both ?", ("somebody else",), ("Heat",), "films", form=form)
    finds = [
        action("Find_relation [ Heat | starred_actors ]"),
        action("Find_relation [ Ronin | starred_actors ]"),
    ]
    merge = action("Merge [ expression1 | expression2 ]")
    assert reference_actions(question, 6) == (*finds, merge)
    # In two turns, the second one has two actions.
    first, second = reference_actions(question, 2)
    assert first == finds[0]
    assert [
        line.strip() for line in second.removeprefix("<action>").removesuffix("</action>").splitlines()
    ] == [
        "Find_relation [ Ronin | starred_actors ]",
        "Merge [ expression1 | expression2 ]",
    ]
    assert reference_actions(replace(question, form=""), 6) == ()


def test_all_steps_that_a_turn_contains_are_taken():
    steps = (STARRING, THEN_BORN)
    both = STARRING.removesuffix("</action>") + "\n" + THEN_BORN.removeprefix("<action>")
    taken = Turn(0, 1, (-0.1,), turn("At once.", both), Status.OK, "v1")
    assert "no step is left" in hint(steps, [taken])
    assert THEN_BORN in hint(steps, [replace(taken, text=turn("One.", STARRING))])
    other = replace(taken, text=turn("Another.", action("Count [ expression1 ]")))
    assert THEN_BORN in hint(steps, [other])
    assert STARRING in hint(steps, [replace(other, status=Status.UNPARSABLE)])
