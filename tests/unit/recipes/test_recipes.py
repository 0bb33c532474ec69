import subprocess
import sys

import pytest

from kbqa.cold_start.teachers import TEACHERS
from kbqa.errors import RecipeError
from kbqa.recipes import load_recipe, recipe_names
from kbqa.rewards import IspKgrReward, KgR1Reward
from kbqa.rollouts import Branching
from kbqa.trajectory import Question


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_in_the_package_is_valid_and_named_after_its_file(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    recipe.protocol.build()
    recipe.reward.build()
    recipe.optimisation.build()


def test_kg_r1_has_the_papers_numbers():
    recipe = load_recipe("kg-r1")
    rewards = recipe.reward
    assert (rewards.w_format, rewards.w_query, rewards.w_answer) == (0.5, 0.5, 0.5)  # table 8
    assert (rewards.w_f1, rewards.w_retrieval) == (1.0, 1.0)
    assert (recipe.rollout.n, recipe.rollout.max_turns, recipe.rollout.temperature) == (16, 5, 1.0)
    assert (recipe.advantage.kind, recipe.advantage.lam) == ("turn", 1.0)
    step = recipe.optimisation
    assert (step.learning_rate, step.weight_decay, step.clip_norm) == (1e-6, 0.01, 1.0)
    assert (step.kl_coefficient, step.aggregation) == (0.01, "token_sum")
    assert (recipe.schedule.steps, recipe.schedule.questions_per_step) == (400, 128)
    assert recipe.schedule.max_staleness == 0


def test_an_overlay_changes_what_it_names_and_keeps_the_rest():
    small, paper = load_recipe("kg-r1-small"), load_recipe("kg-r1")
    assert small.base_model is None
    assert small.protocol.name == paper.protocol.name
    assert small.optimisation.weight_decay == paper.optimisation.weight_decay


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"schedule.stepz": 3}, r"schedule.stepz: unknown key \(known: steps, "),
        ({"rolout.n": 3}, r"rolout: unknown key \(known: name, base_model"),
        ({"small_policy.warm_up.step": 3}, r"small_policy.warm_up.step: unknown key \(known: steps"),
        ({"rollout.n": 0}, r"rollout.n: .*greater than or equal to 1"),
        ({"rollout.n": "many"}, r"rollout.n: .*integer"),
        ({"advantage.kind": "best"}, r"advantage.kind: .*'group', 'turn', 'turn_and_outcome' or 'state'"),
        ({"name.x": 3}, "name is not a section"),
    ],
)
def test_a_wrong_value_names_the_key_and_what_is_allowed(overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("kg-r1-small", overrides)


def test_an_unknown_recipe_names_the_known_ones():
    with pytest.raises(RecipeError, match="known: .*kg-r1, kg-r1-as-released, kg-r1-small, "):
        load_recipe("kgr1")


@pytest.mark.parametrize("content", ["{", "- a", "", "name: [x"])
def test_a_file_that_is_no_recipe_is_an_error(tmp_path, content):
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(RecipeError):
        load_recipe(str(file))


def test_a_file_of_ones_own_may_extend_a_recipe(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: kg-r1-small\nname: mine\nrollout: {n: 4}\n")
    assert load_recipe(str(file)).rollout.n == 4


def test_the_digest_covers_every_value():
    assert load_recipe("kg-r1").digest() == load_recipe("kg-r1").digest()
    assert load_recipe("kg-r1", {"schedule.steps": 399}).digest() != load_recipe("kg-r1").digest()


@pytest.mark.parametrize("module", ["kbqa.recipes", "services.trainer.app", "services.gateway.app"])
def test_torch_is_not_loaded_before_something_is_computed(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"reward.w_formt": 3}, r"reward\.w_formt: unknown key \(known: name, w_format, "),
        ({"reward.w_format": "much"}, r"reward\.w_format: .*number"),
        ({"protocol.prompt": "long"}, r"protocol\.prompt: .*'full' or 'brief'"),
        ({"protocol.name": "sparqle"}, r'protocol\.name: no such one: "sparqle" \(known: .*kg_r1'),
    ],
)
def test_a_wrong_option_of_a_part_names_the_key_and_what_is_allowed(overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("kg-r1-small", overrides)


def test_options_that_are_left_out_are_resolved():
    recipe = load_recipe("kg-r1", {"reward": {"name": "kg_r1"}})
    assert recipe.model_dump()["reward"]["w_retrieval"] == 1.0
    assert recipe.reward.build() == KgR1Reward()


def test_the_released_kg_r1_differs_where_its_script_does():
    recipe = load_recipe("kg-r1-as-released")
    assert recipe.rollout.max_turns == 7
    assert (recipe.reward.w_f1, recipe.reward.w_retrieval, recipe.reward.unique_queries) == (0.5, 0.5, True)
    assert (recipe.advantage.kind, recipe.advantage.turn_weight, recipe.advantage.outcome_weight) == (
        *("turn_and_outcome", 0.5, 1.0),
    )
    assert (recipe.optimisation.aggregation, recipe.optimisation.horizon) == ("token_sum_norm", 4500)
    assert recipe.protocol.build().relations == "hierarchical"


def test_isp_kgr_has_the_papers_numbers():
    recipe = load_recipe("isp-kgr")
    assert recipe.rollout.branching() == Branching(16, 16, 1024, "parent")
    assert (recipe.rollout.max_turns, recipe.rollout.max_turn_tokens) == (6, 1024)
    assert recipe.reward.build() == IspKgrReward(0.1, 0.6, 0.3, "algorithm", 3)  # table 6
    step = recipe.optimisation
    assert (step.learning_rate, step.clip_low, step.clip_high, step.kl_coefficient) == (1e-6, 0.2, 0.2, 0.0)
    assert (recipe.advantage.kind, recipe.advantage.bound, step.aggregation) == ("state", None, "sample_mean")
    assert (recipe.schedule.steps, recipe.schedule.questions_per_step) == (168, 64)


def test_the_released_isp_kgr_differs_where_its_code_does():
    recipe = load_recipe("isp-kgr-as-released")
    assert recipe.reward.build() == IspKgrReward(0.1, 0.3, 0.6, "released", 3)
    step = recipe.optimisation
    assert (step.learning_rate, step.clip_low, step.clip_high, step.weight_decay) == (5e-7, 0.2, 0.24, 0.0)
    assert (recipe.advantage.bound, recipe.schedule.steps) == (10.0, 100)


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("kg-r1", {"rollout.k": 4}, r"rollout\.k: unknown key \(known: temperature, .*, n\)"),
        ("kg-r1", {"rollout.kind": "tree"}, r"rollout\.k: Field required"),
        (
            "isp-kgr",
            {"rollout.n": 4},
            r"rollout\.n: unknown key \(known: .*, max_active, max_nodes, pruning\)",
        ),
        ("isp-kgr", {"rollout.pruning": "none"}, r"rollout\.pruning: .*'parent' or 'tree'"),
        ("isp-kgr", {"rollout.kind": "bush"}, r"rollout: .*'bush' .*'kind' .*'linear', 'tree'"),
        (
            "isp-kgr",
            {"advantage.kind": "turn"},
            "advantage.kind: 'turn' does not go with rollout.kind 'tree'",
        ),
        ("kg-r1", {"advantage.kind": "state"}, "advantage.kind: 'state' does not go with .* 'linear'"),
        ("isp-kgr", {"reward": {"name": "kg_r1"}}, "reward.name: 'kg_r1' does not score the steps of a tree"),
    ],
)
def test_a_recipe_has_the_keys_of_its_kind_of_rollout(name, overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(name, overrides)


def test_isp_kgrs_trajectory_level_optimisation_is_a_linear_recipe_with_the_same_reward():
    """Its ablation: 16 independent rollouts, the rewards of their nodes averaged (5.3)."""
    linear = load_recipe("isp-kgr").rollout.model_dump(exclude={"k", "max_active", "max_nodes", "pruning"})
    overrides = {"rollout": {**linear, "kind": "linear", "n": 16}, "advantage.kind": "group"}
    assert load_recipe("isp-kgr", overrides).rollout.width == 16


def test_learning_to_refine_takes_questions_with_one_answer_and_other_recipes_all():
    one, two = (Question("q", "?", answers, (), "kg") for answers in (("a",), ("a", "b")))
    assert load_recipe("learning-to-refine-small").questions.suit(one)
    assert not load_recipe("learning-to-refine-small").questions.suit(two)
    assert load_recipe("kg-r1-small").questions.suit(two)


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.endswith("-small")])
def test_a_small_recipe_is_its_paper_with_a_policy_from_nothing(name):
    small, paper = load_recipe(name), load_recipe(name.removesuffix("-small"))
    assert small.base_model is None
    assert small.small_policy is not None
    assert small.cold_start is not None
    assert small.cold_start.demonstrations <= 300
    assert small.rollout.max_tokens <= small.small_policy.max_length
    assert (small.protocol.name, small.rollout.kind) == (paper.protocol.name, paper.rollout.kind)
    assert small.reward.name == paper.reward.name
    assert small.protocol.name in TEACHERS
