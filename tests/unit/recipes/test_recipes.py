import subprocess
import sys

import pytest

from kbqa.cold_start.teachers import TEACHERS
from kbqa.errors import RecipeError
from kbqa.policies.base import Truncation
from kbqa.recipes import load_recipe, recipe_from, recipe_names
from kbqa.rewards import KgR1Reward
from kbqa.trajectory import Question


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_in_the_package_is_valid_and_named_after_its_file(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    recipe.protocol.build()
    recipe.reward.build()
    recipe.optimisation.build()


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
        ({"small_policy.layer": 3}, r"small_policy.layer: unknown key \(known: vocabulary"),
        ({"cold_start.paths": "silver"}, r"cold_start.paths: .*'mined' or 'gold'"),
        ({"protocol.entities": "ids"}, r"protocol\.entities: .*'names' or 'references'"),
        ({"rollout.n": 0}, r"rollout.n: .*greater than or equal to 1"),
        ({"rollout.n": "many"}, r"rollout.n: .*integer"),
        (
            {"advantage.kind": "best"},
            r'advantage: .*unknown name "best" \(known: group, turn, .*, state\)',
        ),
        ({"name.x": 3}, "name is not a section"),
        ({"rollout.top_p": 0}, r"rollout.top_p: .*greater than 0"),
        ({"rollout.top_k": 0}, r"rollout.top_k: .*greater than or equal to 1"),
        (
            {"evaluation.top_q": 0.9},
            r"evaluation.top_q: unknown key \(known: temperature, top_p, top_k, beam\)",
        ),
        (
            {"evaluation.beam": 3},
            "evaluation.beam: needs a protocol of choices, and evaluation.temperature: 0",
        ),
        ({"optimisation.decay": "linear"}, r"optimisation.decay: .*'constant' or 'cosine'"),
        ({"optimisation.betas": [0.9, 1.0]}, r"optimisation.betas.1: .*less than 1"),
        (
            {"optimisation.mini_batch_samples": 3},
            "optimisation: .*mini_batch_questions and mini_batch_samples exclude each other",
        ),
        (
            {"optimisation.warm_up_steps": 3, "optimisation.warm_up_share": 0.1},
            "optimisation: .*warm_up_steps and warm_up_share exclude each other",
        ),
    ],
)
def test_a_wrong_value_names_the_key_and_what_is_allowed(overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("kg-r1-small", overrides)


def test_an_unknown_recipe_names_the_known_ones():
    known = (
        "known: .*kg-r1, kg-r1-7b, kg-r1-as-released, kg-r1-chooser, kg-r1-forms, kg-r1-reader, kg-r1-small, "
    )
    with pytest.raises(RecipeError, match=known):
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


def test_rollouts_and_trainer_mean_the_same_distribution():
    recipe = load_recipe("kbqa-r1", {"rollout.temperature": 0.7, "rollout.top_k": 40})
    config = recipe.optimisation.build(recipe.rollout)
    assert (config.temperature, config.truncation) == (0.7, Truncation(top_p=0.99, top_k=40))
    assert recipe.rollout.truncation() == config.truncation
    greedy = load_recipe("kbqa-r1", {"rollout.temperature": 0})
    assert greedy.optimisation.build(greedy.rollout).temperature == 1.0  # under which it is scored


def test_the_learning_rate_rises_as_the_recipe_says():
    recipe = load_recipe("kbqa-r1")
    rates = [recipe.optimisation.rate().at(step, recipe.schedule.steps) for step in (0, 51, 52, 172)]
    assert rates == pytest.approx([1e-6 / 52, 1e-6, 1e-6, 1e-6])


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
        ({"protocol.name": "sparqle"}, r'protocol\.name: unknown name "sparqle" \(known: .*kg_r1'),
    ],
)
def test_a_wrong_option_of_a_part_names_the_key_and_what_is_allowed(overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("kg-r1-small", overrides)


def test_options_that_are_left_out_are_resolved():
    recipe = load_recipe("kg-r1", {"reward": {"name": "kg_r1"}})
    assert recipe.model_dump()["reward"]["w_retrieval"] == 1.0
    assert recipe.reward.build() == KgR1Reward()


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("kg-r1", {"rollout.k": 4}, r"rollout\.k: unknown key \(known: temperature, .*, n, screened\)"),
        ("kg-r1", {"rollout.kind": "tree"}, r"rollout\.k: Field required"),
        (
            "isp-kgr",
            {"rollout.n": 4},
            r"rollout\.n: unknown key \(known: .*, max_active, max_nodes, pruning, beyond, .*\)",
        ),
        ("isp-kgr", {"rollout.pruning": "child"}, r"rollout\.pruning: .*'parent', 'tree' or 'none'"),
        (
            "isp-kgr",
            {"rollout.kind": "bush"},
            r'rollout: .*unknown name "bush" \(known: linear, tree\)',
        ),
        (
            "isp-kgr",
            {"advantage.kind": "turn"},
            "advantage.kind: 'turn' cannot be combined with rollout.kind 'tree'",
        ),
        ("kg-r1", {"advantage.kind": "state"}, "advantage.kind: 'state' cannot be combined with .* 'linear'"),
        ("isp-kgr", {"reward": {"name": "kg_r1"}}, "reward.name: 'kg_r1' cannot score the steps of a tree"),
    ],
)
def test_a_recipe_has_the_keys_of_its_kind_of_rollout(name, overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(name, overrides)


def test_isp_kgrs_trajectory_level_optimisation_is_a_linear_recipe_with_the_same_reward():
    """Its ablation: 16 independent rollouts, the rewards of their nodes averaged (5.3)."""
    linear = load_recipe("isp-kgr").rollout.model_dump(
        exclude={"k", "max_active", "max_nodes", "pruning", "beyond", "filter_errors"}
    )
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
    assert small.cold_start.is_mined
    assert (small.small_policy.warm_up is None) == (name == "kg-r1-small")
    assert small.rollout.max_tokens <= small.small_policy.max_length
    assert (small.protocol.name, small.rollout.kind) == (paper.protocol.name, paper.rollout.kind)
    assert small.reward.name == paper.reward.name
    assert small.protocol.name in TEACHERS


def test_a_digest_tells_recipes_apart_and_knows_no_defaults():
    """A recipe that was stored before a key existed is still the same recipe."""
    recipe = load_recipe("kg-r1-small")
    stored = recipe.model_dump(mode="json")
    del stored["graph"], stored["guards"], stored["optimisation"]["reference"]
    assert recipe_from(stored).digest() == recipe.digest()
    assert load_recipe("kg-r1-small", {"graph.query_timeout_s": 5}).digest() != recipe.digest()


def test_versions_are_not_published_less_often_than_groups_may_be_stale():
    assert load_recipe("kg-r1-small", {"schedule.publish_every": 3}).schedule.publish_every == 3
    with pytest.raises(RecipeError, match="publish_every: must be at most max_staleness"):
        load_recipe("kg-r1", {"schedule.publish_every": 2})
