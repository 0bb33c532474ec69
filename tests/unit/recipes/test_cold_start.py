"""How long an imitation lasts, and by which rate it learns."""

from __future__ import annotations

import pytest

from kbqa.errors import RecipeError
from kbqa.recipes import load_recipe, recipe_names
from kbqa.training.adapters import Adapter


def test_epochs_become_steps_once_it_is_known_how_many_demonstrations_there_are():
    section = load_recipe("knowcoder-a1").cold_start
    assert section is not None
    config = section.build(440)  # WebQSP's, table 8
    assert (config.steps, config.batch, config.learning_rate) == (440, 8, 2e-5)  # 8 epochs of 55 steps
    assert section.build(563).steps == 563
    assert section.build(3).steps == 3
    assert (config.decay, config.floor, config.warm_up_steps, config.precision) == ("cosine", 0.0, 0, "bf16")
    assert section.lora is not None
    assert section.lora.build() == Adapter(rank=8, alpha=16)


def test_small_recipes_imitate_as_they_always_did():
    for name in ("kbqa-r1-small", "knowcoder-a1-small", "isp-kgr-small"):
        section = load_recipe(name).cold_start
        assert section is not None
        config = section.build(150)
        assert (config.steps, config.warm_up_steps, config.decay, config.floor) == (1000, 20, "cosine", 0.1)
        assert (section.fresh_names, section.file, section.lora, section.max_length) == (
            True,
            None,
            None,
            None,
        )


@pytest.mark.parametrize("name", recipe_names())
def test_no_recipe_follows_gold_programs_unless_it_says_so(name):
    """Those that imitate a file leave to its maker what it was made from."""
    section = load_recipe(name).cold_start
    follows = section is not None and section.paths == "gold"
    assert follows == (name in ("knowcoder-a1-multihop", "knowcoder-a1-pathquestion", "reader", "reader-sft"))
    if name.endswith("-small"):
        assert section is not None
        assert section.is_mined


def test_demonstrations_of_a_file_are_not_mined():
    section = load_recipe("kg-r1-small", {"cold_start.file": "a.jsonl"}).cold_start
    assert section is not None
    assert not section.is_mined
    gold = load_recipe("kg-r1-small", {"cold_start.paths": "gold"}).cold_start
    assert gold is not None
    assert not gold.is_mined


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 2}, "exactly one of steps and epochs"),
        ({"steps": None}, "exactly one of steps and epochs"),
        ({"steps": None, "epochs": 2}, "learned_loss: can only be used with steps"),
        ({"file": "../../etc/passwd.jsonl"}, "file"),
        ({"file": "no-lines.txt"}, "file"),
        ({"lora": {"quantised": True}}, "lora.quantised"),
    ],
)
def test_a_cold_start_that_could_not_be_is_refused(changes, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("kbqa-r1-small", {f"cold_start.{key}": value for key, value in changes.items()})
