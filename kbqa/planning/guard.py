"""Refuses what cannot fit this machine, before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from kbqa.errors import MachineTooSmallError, PlanError
from kbqa.planning.architectures import architecture_of
from kbqa.recipes import Recipe, recipe_from


def fitted(recipe: Recipe, processes: int | None = None, nodes: int = 1) -> Recipe:
    """The recipe as it is trained on this machine; see `kbqa.planning.defaults`.

    The plan is made in a process of its own, because a service that only starts training does not load torch.
    Policies that choose, and those with random weights, are small and are not planned.

    Args:
        processes: training processes of a node; None means one for each GPU, and one without GPUs.
        nodes: machines like this one that share the training.

    Raises:
        MachineTooSmallError: it does not fit; says what would.
        PlanError: the size of the base model is not known, or the planning process failed.
    """
    if recipe.base_model is None or architecture_of(recipe) is None:
        return recipe
    order = {
        "recipe": recipe.model_dump(mode="json", exclude_unset=True),
        "processes": processes,
        "nodes": nodes,
    }
    command = [sys.executable, "-P", "-m", "kbqa.planning"]
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PlanError(f"the memory of recipe {recipe.name} cannot be planned: {reason}")
    reply: dict[str, Any] = json.loads(done.stdout)
    if reply["refusal"] is not None:
        raise MachineTooSmallError(reply["refusal"])
    return recipe_from(reply["recipe"])
