"""What a recipe may say of its curriculum, and what it may not."""

from __future__ import annotations

import pytest

from kbqa.errors import DatasetError, RecipeError
from kbqa.recipes import load_recipe
from kbqa.rewards.knowcoder_a1 import KnowCoderA1Reward
from kbqa.trajectory import Hop, Question

PHASES = [
    {"name": "precision", "until": {"patience": 3}},
    {"name": "balanced", "reward": {"beta": 1.0}},
]


def with_stages(stages, **section):
    return load_recipe("knowcoder-a1", {"curriculum": {"stages": stages, **section}})


def test_a_stage_lays_its_options_over_the_reward():
    recipe = with_stages(PHASES)
    assert recipe.reward_in(None) == recipe.reward_in(0) == KnowCoderA1Reward(beta=0.5)
    assert recipe.reward_in(1) == KnowCoderA1Reward(beta=1.0)
    with pytest.raises(ValueError, match="has 2 stages; there is no stage number 2"):
        recipe.reward_in(2)
    with pytest.raises(ValueError, match="has 0 stages"):
        load_recipe("kg-r1").reward_in(0)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([{"name": "a"}, {"name": "b"}], "a never ends"),
        ([{"name": "a", "until": {"steps": 1}}], "a is the last"),
        ([{"name": "a", "until": {"metric": "f1"}}, {"name": "b"}], "set steps, at_least or patience"),
        ([{"name": "a", "reward": {"gamma": 1}}], r"a: reward: gamma: unknown key \(known: name, beta"),
        ([{"name": "a", "bogus": 1}], r"curriculum.stages.0.bogus: unknown key"),
        ([{"name": "a", "tiers": ["simple"]}], "tiers.0: .*easy"),
        ([], "stages"),
    ],
)
def test_a_course_that_cannot_be_gone_is_refused_with_the_reason(stages, message):
    with pytest.raises(RecipeError, match=message):
        with_stages(stages)


def test_tiers_have_to_rise():
    with pytest.raises(RecipeError, match="medium: must be greater than easy, which is 3"):
        with_stages([{"name": "a"}], tiers={"easy": 3, "medium": 3})


def test_a_stage_without_questions_says_what_is_missing():
    recipe = with_stages([{"name": "hard", "tiers": ["hard"], "until": {"steps": 5}}, {"name": "all"}])
    questions = [Question("q", "?", ("x",), ("Ada",), "g", path=(Hop("a"),) * hops) for hops in (0, 1, 2)]
    assert recipe.curriculum is not None
    with pytest.raises(DatasetError, match="hard has no questions: .* known only from gold paths"):
        recipe.curriculum.build(questions, seed=1, shares={})


def test_a_question_without_a_program_is_asked_where_all_tiers_are():
    recipe = with_stages([{"name": "all"}])
    assert recipe.curriculum is not None
    course = recipe.curriculum.build([Question("q", "?", ("x",), ("Ada",), "g")], seed=1, shares={})
    assert course[3].id == "q"
