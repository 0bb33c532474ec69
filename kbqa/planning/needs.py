"""What a recipe needs of the engine that plays it; computed without torch."""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.planning.architectures import PUBLISHED, REVISIONS
from kbqa.recipes import Recipe, load_recipe, recipe_names


@dataclass(frozen=True, slots=True)
class EngineNeeds:
    """What vLLM has to be started with.

    Attributes:
        base: the recipe's base model, if it is a published language model; "" for policies that run in the
            services' own processes.
        revision: its commit on the hub.
        context: tokens of the longest episode (`--max-model-len`).
        lora_rank: rank of the adapters (`--max-lora-rank`); 0 for recipes that train whole weights.
    """

    base: str
    revision: str
    context: int
    lora_rank: int


def engine_needs(recipe: Recipe) -> EngineNeeds:
    """The needs of a recipe."""
    base = recipe.base_model if recipe.base_model in PUBLISHED else ""
    lora = recipe.optimisation.lora
    return EngineNeeds(
        base, REVISIONS[base] if base else "", recipe.rollout.max_tokens, 0 if lora is None else lora.rank
    )


def needs_by_recipe() -> dict[str, EngineNeeds]:
    """The needs of each recipe in the package."""
    return {name: engine_needs(load_recipe(name)) for name in recipe_names()}
