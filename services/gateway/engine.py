"""A published version as an engine: in this process, or in a vLLM server."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.vllm import Precision, VllmPolicy, VllmServer, Weights
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import recipe_from
from kbqa.telemetry import Metrics
from services.gateway.policies import ServedPolicy

if TYPE_CHECKING:
    from kbqa.policies.in_process import InProcessPolicy

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Vllm:
    """A vLLM server that only this gateway uses.

    Attributes:
        precision: precision of the server.
        timeout_s: timeout for the completions of a turn, in seconds.
    """

    server: VllmServer
    metrics: Metrics
    precision: Precision
    timeout_s: float


def load_policy(
    store: PolicyStore, version: PolicyVersion, *, max_rows: int, vllm: Vllm | None = None
) -> ServedPolicy:
    """Check a version's files and load it; its recipe says how it plays.

    Several adapters can be loaded at the same time. Full weights in a vLLM server replace the previous ones;
    questions that are still being answered with those fail with a `PolicyUnavailableError`, because an
    answer must come from a single version.

    Args:
        max_rows: completions computed at a time in this process.
        vllm: computes completions; None computes them in this process.

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
    policy = _in_process(version, codec, max_rows) if vllm is None else _on_vllm(version, codec, vllm)
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


def _in_process(version: PolicyVersion, codec: TokenizerCodec, max_rows: int) -> InProcessPolicy:
    # Torch takes seconds to import; the gateway can report that it has no policy without it.
    from kbqa.policies.adapters import AdaptedModel
    from kbqa.policies.in_process import load_model, open_policy

    manifest = version.manifest
    if manifest.kind == "lora":
        model = AdaptedModel.load(version.path, manifest.base_model, manifest.probe).model
    else:
        model = load_model(version.path)
    return open_policy(model, codec, version.id, max_rows=max_rows)


def _on_vllm(version: PolicyVersion, codec: TokenizerCodec, vllm: Vllm) -> VllmPolicy:
    policy = VllmPolicy(vllm.server, codec, vllm.metrics, precision=vllm.precision, timeout_s=vllm.timeout_s)
    manifest, label = version.manifest, f"{version.run}/{version.id}"
    try:
        policy.hold(Weights(label, version.id, manifest.kind, version.path, manifest.probe))
    except BaseException:
        policy.close()
        raise
    return policy
