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

    Adapters are held beside each other. Whole weights in a vLLM server replace those before: what
    is still being answered with them fails with a `PolicyUnavailableError`, since no answer may be
    the work of two versions.

    Args:
        host: makes its engine.

    Raises:
        PolicyIntegrityError: files do not match the manifest, or are no model.
        BaseNotFoundError: it is an adapter, whose base model is not on this machine.
        PolicyMismatchError: what computes is not what the version's trainer had.
        PolicyUnavailableError: the server does not hold the version.
        RecipeError: its recipe is not one of this release.
    """
    started = time.monotonic()
    try:
        store.verify(version)
    except OSError as error:  # retention removed it meanwhile
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
