"""The one engine of a worker, and the policy version that it holds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from safetensors.torch import load_file

from kbqa.errors import NoPolicyError, PolicyError, PolicyIntegrityError, RecipeError
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.transformers import TransformersPolicy, load_model
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import Recipe, recipe_from
from kbqa.telemetry import Metrics

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_WEIGHTS = "model.safetensors"
_SHAPE_FILES = ("config.json", "tokenizer.json")  # equal in versions that differ in weights alone


@dataclass(frozen=True, slots=True)
class Held:
    """What the engine holds: a version, and the recipe that it was made with."""

    version: PolicyVersion
    recipe: Recipe
    policy: TransformersPolicy
    codec: TokenizerCodec


class Engine:
    """Holds the newest version of whichever run is asked for.

    Requests of one run share the engine and see its versions change between two turns.
    Another run's request waits until they are done, so that no trajectory mixes runs.

    Args:
        max_rows: most completions computed at a time.
    """

    def __init__(self, store: PolicyStore, metrics: Metrics, max_rows: int) -> None:
        self._store, self._max_rows = store, max_rows
        self._loads = metrics.counter("kbqa_rollout_policy_loads_total")
        self._number = metrics.gauge("kbqa_rollout_policy_version")
        self._held: Held | None = None
        self._users = 0
        self._turnstile = threading.Condition()

    @contextmanager
    def lease(self, run: str, at_least: int, wait_s: float) -> Iterator[Held]:
        """Use the newest version of `run` with a number of at least `at_least`.

        Raises:
            NoPolicyError: none was published within `wait_s`.
            PolicyIntegrityError: the version cannot be loaded.
            PolicyUnavailableError: the engine fails.
        """
        held = self._enter(run, at_least, time.monotonic() + wait_s)
        try:
            yield held
        finally:
            with self._turnstile:
                self._users -= 1
                self._turnstile.notify_all()

    def discard(self, held: Held) -> None:
        """Build the engine anew for the next request, since this one has failed."""
        with self._turnstile:
            if self._held is not None and self._held.policy is held.policy:
                self._held = None
        held.policy.close()

    def close(self) -> None:
        """Stop computing; requests in flight fail."""
        if self._held is not None:
            self._held.policy.close()

    def _enter(self, run: str, at_least: int, deadline: float) -> Held:
        while True:
            with self._turnstile:
                newest = self._store.newest(run, at_least)
                if newest is not None and self._may_hold(newest):
                    if (
                        self._held is None
                        or self._held.version.id != newest.id
                        or self._held.version.run != run
                    ):
                        self._held = self._load(newest)
                        self._number.set(newest.number)
                    self._users += 1
                    return self._held
                if time.monotonic() > deadline:
                    raise NoPolicyError(
                        f"run {run} has no version from {at_least} on"
                        if newest is None
                        else f"the engine is busy with another run than {run}"
                    )
                self._turnstile.wait(_POLL_S)

    def _may_hold(self, version: PolicyVersion) -> bool:
        """Whether the engine may change to `version` while others use it."""
        if self._held is None or self._users == 0:
            return True
        return self._held.version.run == version.run and _same_shape(self._held.version, version)

    def _load(self, version: PolicyVersion) -> Held:
        began = time.monotonic()
        held, self._held = self._held, None  # a load that fails leaves an engine in doubt
        try:
            self._store.verify(version)
            recipe = recipe_from(version.recipe(), version.id)
            if held is not None and _same_shape(held.version, version):
                weights = load_file(version.path / _WEIGHTS)
                held.policy.swap(version.id, lambda model: _replace_weights(model, weights))
                policy, codec, kind = held.policy, held.codec, "swap"
            else:
                if held is not None:
                    held.policy.close()
                codec = TokenizerCodec.load(version.path)
                policy = TransformersPolicy(
                    load_model(version.path), codec, version.id, max_rows=self._max_rows
                )
                kind = "build"
        except (PolicyError, RecipeError, OSError, RuntimeError) as error:
            if held is not None:
                held.policy.close()
            if isinstance(error, PolicyError):
                raise
            # Retention removed it meanwhile, or its parts do not fit each other.
            raise PolicyIntegrityError(f"{version.path}: {error}") from error
        self._loads.labels(kind).inc()
        seconds = round(time.monotonic() - began, 3)
        logger.info("policy loaded", extra={"version": version.id, "kind": kind, "seconds": seconds})
        return Held(version, recipe, policy, codec)


def _same_shape(left: PolicyVersion, right: PolicyVersion) -> bool:
    return all(left.manifest.files.get(name) == right.manifest.files.get(name) for name in _SHAPE_FILES)


def _replace_weights(model: Any, weights: dict[str, Any]) -> None:
    """Copy weights into a model of the same architecture.

    Raises:
        PolicyIntegrityError: a tensor is missing or surplus.
    """
    missing, surplus = model.load_state_dict(weights, strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())  # stored once, under another name
    if surplus or set(missing) - tied:
        names = ", ".join(sorted({*surplus, *(set(missing) - tied)})[:5])
        raise PolicyIntegrityError(f"the weights do not fit the model: {names}")
