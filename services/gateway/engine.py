"""A published version as an engine in this process."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import recipe_from
from services.gateway.policies import ServedPolicy

logger = logging.getLogger(__name__)


def load_policy(store: PolicyStore, version: PolicyVersion, *, max_rows: int) -> ServedPolicy:
    """Check a version's files and load it; its recipe says how it plays.

    Args:
        max_rows: completions computed at a time.

    Raises:
        PolicyIntegrityError: files do not match the manifest, or are no model.
        RecipeError: its recipe is not one of this release.
    """
    # Torch takes seconds to import; until there is a policy the gateway can say so without it.
    from kbqa.policies.transformers import TransformersPolicy, load_model

    started = time.monotonic()
    if version.manifest.kind != "full":
        raise PolicyIntegrityError(
            f"policy {version.id} is a {version.manifest.kind} adapter: merge it into its base model first"
        )
    try:
        store.verify(version)
    except OSError as error:  # retention removed it meanwhile
        raise PolicyIntegrityError(f"{version.path}: {error}") from error
    recipe = recipe_from(version.recipe(), source=f"{version.path}/recipe.json")
    codec = TokenizerCodec.load(version.path)
    policy = TransformersPolicy(load_model(version.path), codec, version.id, max_rows=max_rows)
    budget = recipe.rollout.budget()
    logger.info(
        "policy loaded", extra={"version": version.id, "seconds": round(time.monotonic() - started, 2)}
    )
    return ServedPolicy(
        version=version.id,
        recipe=recipe.name,
        policy=policy,
        codec=codec,
        protocol=recipe.protocol.build(),
        budget=replace(budget, max_tokens=min(budget.max_tokens, policy.max_length)),
        close=policy.close,
        alive=lambda: policy.alive,
    )
