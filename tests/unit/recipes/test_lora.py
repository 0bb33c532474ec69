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
