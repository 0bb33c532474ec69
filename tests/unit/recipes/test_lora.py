import pytest

from kbqa.errors import RecipeError
from kbqa.recipes import load_recipe
from kbqa.training.adapters import Adapter


def test_an_adapter_is_trained_if_the_recipe_says_so():
    lora = {"rank": 64, "alpha": 16, "targets": ["q_proj", "v_proj"], "quantised": True}
    recipe = load_recipe("learning-to-refine", {"optimisation.lora": lora, "optimisation.precision": "bf16"})
    config = recipe.optimisation.build(recipe.rollout)
    assert config.adapter == Adapter(64, 16, ("q_proj", "v_proj"), quantised=True)
    assert config.precision == "bf16"
    assert load_recipe("kg-r1").optimisation.build().adapter is None


def test_a_section_without_values_is_the_adapter_by_default():
    recipe = load_recipe("kg-r1", {"optimisation.lora": {}})
    assert recipe.optimisation.build().adapter == Adapter()


def test_a_base_in_four_bits_is_refused_unless_the_difference_from_the_engines_is_corrected():
    with pytest.raises(RecipeError, match="importance_cap"):
        load_recipe("learning-to-refine", {"optimisation.importance_cap": None})


def test_large_recipes_correct_for_their_engine_and_watch_it():
    for name in ("kg-r1", "kg-r1-7b", "kbqa-r1", "knowcoder-a1", "isp-kgr", "learning-to-refine"):
        recipe = load_recipe(name)
        assert (recipe.optimisation.importance_cap, recipe.guards.max_logprob_gap) == (2.0, 0.1)
        plain = load_recipe(name, {"optimisation.lora": None, "optimisation.importance_cap": None})
        assert plain.optimisation.build().surrogate.importance_cap is None


@pytest.mark.parametrize(
    ("name", "lora", "message"),
    [
        ("kg-r1", {"rank": 48}, "rank"),  # no engine serves it
        ("kg-r1-small", {"rank": 8}, "base_model"),  # beside what would it be served?
        ("knowcoder-a1-phase-2", {"rank": 8}, "reference: with lora the reference is the model without"),
    ],
)
def test_an_adapter_that_could_not_be_served_is_refused(name, lora, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(name, {"optimisation.lora": lora})
