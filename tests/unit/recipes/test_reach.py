"""What a recipe of a request may name beyond itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbqa.errors import RecipeRefusedError
from kbqa.recipes import load_recipe, recipe_names
from kbqa.recipes.reach import Reach

JUDGE = {"judge.name": "chat", "judge.model": "m"}


def refused(
    reach: Reach, overrides: dict[str, object], recipe: str = "learning-to-refine"
) -> tuple[str, str]:
    with pytest.raises(RecipeRefusedError) as refusal:
        reach.require(load_recipe(recipe, overrides))
    return refusal.value.key, refusal.value.kind


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe_needs_no_permission(name: str):
    Reach().require(load_recipe(name))


@pytest.mark.parametrize(
    ("allowed", "named", "passes"),
    [
        ("https://judge.example/v1", "https://judge.example/v1/", True),
        ("https://judge.example/v1", "https://judge.example/v1/../admin", False),
        ("https://judge.example/v1", "https://judge.example/v1@evil.example", False),
        ("https://judge.example", "http://judge.example", False),
    ],
)
def test_only_the_very_url_that_was_allowed_may_be_named(allowed: str, named: str, passes: bool):
    reach = Reach(urls=(allowed,))
    overrides = {**JUDGE, "judge.base_url": named}
    if passes:
        reach.require(load_recipe("learning-to-refine", overrides))
    else:
        assert refused(reach, overrides) == ("judge.base_url", "URL")


def test_no_other_variable_than_an_allowed_one_may_be_named():
    overrides = {"judge.api_key_variable": "AWS_SECRET_ACCESS_KEY"}
    assert refused(Reach(), overrides) == ("judge.api_key_variable", "environment variable")
    Reach(variables=("AWS_SECRET_ACCESS_KEY",)).require(load_recipe("learning-to-refine", overrides))


@pytest.mark.parametrize("key", ["base_model", "optimisation.reference"])
def test_weights_come_from_allowed_directories_only(tmp_path: Path, monkeypatch, key: str):
    models = tmp_path / "models"
    (models / "mine").mkdir(parents=True)
    (tmp_path / "private").mkdir()
    (models / "link").symlink_to(tmp_path / "private")
    monkeypatch.chdir(tmp_path)
    reach = Reach(directories=(models,))
    for path in (models / "mine", "models/mine"):
        reach.require(load_recipe("kg-r1", {key: str(path)}))
    for path in (tmp_path / "private", "private", models / "../private", models / "link", "~/private"):
        assert refused(reach, {key: str(path)}, "kg-r1") == (key, "path")
    reach.require(load_recipe("kg-r1", {key: "Qwen/Qwen2.5-7B-Instruct"}))


def test_options_of_a_stage_are_looked_at_as_well():
    recipe = load_recipe("knowcoder-a1-curriculum")
    assert recipe.curriculum is not None
    stage = recipe.curriculum.stages[0].model_copy(update={"reward": {"template": "/etc/passwd"}})
    curriculum = recipe.curriculum.model_copy(update={"stages": (stage,)})
    with pytest.raises(RecipeRefusedError, match=r"curriculum\.stages\.reward\.template"):
        Reach().require(recipe.model_copy(update={"curriculum": curriculum}))
