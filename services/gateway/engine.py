"""A published version as an engine: in this process, or in a vLLM server."""

from __future__ import annotations

import logging
import time

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import recipe_from
from kbqa.serving.hosting import Host
from kbqa.serving.players import Players
from services.gateway.policies import ServedPolicy

logger = logging.getLogger(__name__)


def load_policy(store: PolicyStore, version: PolicyVersion, host: Host) -> ServedPolicy:
    """Check a version's files and load it; its recipe says how it plays.

    Several adapters can be loaded at the same time. Full weights in a vLLM server replace the previous ones;
    questions that are still being answered with those fail with a `PolicyUnavailableError`, because an
    answer must come from a single version.

    Args:
        host: opens the version in an engine.

    Raises:
        PolicyIntegrityError: files do not match the manifest, or are no model.
        BaseNotFoundError: it is an adapter, whose base model is not on this machine.
        PolicyMismatchError: the engine computes other probabilities than the version's trainer.
        PolicyUnavailableError: the server does not hold the version.
        RecipeError: its recipe is not one of this release.
    """
    started = time.monotonic()
    try:
        store.verify(version)
    except OSError as error:  # it was deleted in the meantime
        raise PolicyIntegrityError(f"{version.path}: {error}") from error
    recipe = recipe_from(version.recipe(), source=f"{version.path}/recipe.json")
    codec = TokenizerCodec.load(version.path)
    hosted = host.build(version, codec, deterministic=False)
    logger.info(
        "policy loaded", extra={"version": version.id, "seconds": round(time.monotonic() - started, 2)}
    )
    return ServedPolicy(
        version=version.id,
        recipe=recipe.name,
        players=Players.of(recipe, hosted.policy, codec),
        close=hosted.close,
        alive=lambda: hosted.alive,
    )
