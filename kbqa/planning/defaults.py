"""A recipe as it is trained on a machine: what it leaves open is decided by the kind of device."""

from __future__ import annotations

from typing import Any

from kbqa.planning.plan import Plan
from kbqa.recipes import Recipe
from kbqa.recipes.section import Section


def resolved(recipe: Recipe, kind: str) -> Recipe:
    """The recipe for a kind of device. On GPUs, matrix products are in bf16 and activations are recomputed.

    What the recipe sets, in its file or by an override, stays as it is; and so does all of it on CPUs.
    """
    if kind != "cuda":
        return recipe
    optimisation = _with_defaults(recipe.optimisation, precision="bf16", gradient_checkpointing=True)
    cold_start = recipe.cold_start and _with_defaults(recipe.cold_start, precision="bf16")
    return recipe.model_copy(update={"optimisation": optimisation, "cold_start": cold_start})


def with_rows_of(recipe: Recipe, plan: Plan) -> Recipe:
    """The recipe with rows no longer than planned. This changes memory and speed, not the result."""
    sections = {"reinforcement": "optimisation", "cold_start": "cold_start"}
    changes: dict[str, Any] = {}
    for name, phase in plan.phases.items():
        section = getattr(recipe, sections[name])
        if phase.row < section.token_budget:
            changes[sections[name]] = section.model_copy(update={"token_budget": phase.row})
    return recipe.model_copy(update=changes)


def _with_defaults(section: Section, **defaults: Any) -> Section:
    open_ones = {key: value for key, value in defaults.items() if key not in section.model_fields_set}
    return section.model_copy(update=open_ones)
