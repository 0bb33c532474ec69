"""The one engine of a worker, and the policy version that it holds."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kbqa.errors import (
    NoPolicyError,
    PolicyError,
    PolicyIntegrityError,
    PolicyUnavailableError,
    RecipeError,
)
from kbqa.policies.base import Policy
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import Recipe, recipe_from
from kbqa.serving.hosting import Host, Hosted
from kbqa.telemetry import Metrics

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_RETRY_S = 1.0  # between attempts to reach an engine that does not answer
# Equal for versions that differ only in their weights.
_SHAPE_FILES = (
    "config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


@dataclass(frozen=True, slots=True)
class Held:
    """The version that the engine holds, its recipe, and the digest of the recipe."""

    version: PolicyVersion
    recipe: Recipe
    recipe_digest: str
    hosted: Hosted
    codec: TokenizerCodec

    @property
    def policy(self) -> Policy:
        return self.hosted.policy


class Engine:
    """Holds the newest version of whichever run is asked for.

    Requests of one run share the engine and see its versions change between two turns.
    Another run's request waits until they are done, so that no trajectory mixes runs.

    If an engine in another process is restarted, it gets the newest version before work continues;
    requests wait for that as long as they wait for a version.

    Args:
        host: makes engines of versions.
    """

    def __init__(self, store: PolicyStore, metrics: Metrics, host: Host) -> None:
        self._store, self._host = store, host
        self._loads = metrics.counter("kbqa_rollout_policy_loads_total")
        self._number = metrics.gauge("kbqa_rollout_policy_version")
        self._holder = f"worker-{socket.gethostname()}-{os.getpid()}"
        self._held: Held | None = None
        self._users = 0
        self._trouble: PolicyError | None = None  # why the last load failed
        self._refused = ("", "")  # the run and version of that
        self._retry_at = 0.0
        self._turnstile = threading.Condition()

    @contextmanager
    def lease(self, run: str, at_least: int, wait_s: float) -> Iterator[Held]:
        """Use the newest version of `run` with a number of at least `at_least`.

        Raises:
            NoPolicyError: none was published within `wait_s`.
            PolicyIntegrityError, PolicyMismatchError: the version cannot be loaded.
            PolicyUnavailableError: the engine fails, or does not answer within `wait_s`.
        """
        held = self._enter(run, at_least, time.monotonic() + wait_s)
        try:
            yield held
        finally:
            with self._turnstile:
                self._users -= 1
                self._turnstile.notify_all()

    def discard(self, held: Held) -> None:
        """Build a new engine for the next request, because this one has failed."""
        with self._turnstile:
            if self._held is not None and self._held.hosted is held.hosted:
                self._held = None
        held.hosted.close()

    def unready(self) -> str | None:
        """None if requests can be played, otherwise why not."""
        return self._host.unready() or (str(self._trouble) if self._trouble is not None else None)

    def close(self) -> None:
        """Stop computing; requests in flight fail."""
        if self._held is not None:
            self._held.hosted.close()

    def _enter(self, run: str, at_least: int, deadline: float) -> Held:
        while True:
            with self._turnstile:
                newest = self._store.newest(run, at_least)
                if newest is not None and self._may_hold(newest):
                    held = self._hold(newest)
                    if held is not None:
                        self._store.hold(self._holder, [held.version])
                        self._users += 1
                        return held
                if time.monotonic() > deadline:
                    if newest is None:
                        raise NoPolicyError(f"run {run} has no version {at_least} or newer")
                    raise self._trouble or NoPolicyError(f"the engine is busy with another run than {run}")
                self._turnstile.wait(_POLL_S)

    def _hold(self, newest: PolicyVersion) -> Held | None:
        """Make the engine hold `newest`; None while it does not answer.

        Raises:
            PolicyError: that version cannot be held.
        """
        held, wanted = self._held, (newest.run, newest.id)
        if held is not None and (held.version.run, held.version.id) == wanted:
            return held
        if self._trouble is not None and time.monotonic() < self._retry_at:
            if isinstance(self._trouble, PolicyUnavailableError):
                return None
            if self._refused == wanted:  # a newer version may be intact
                raise self._trouble
        try:
            self._held = self._load(newest)
        except PolicyError as error:
            self._trouble, self._retry_at = error, time.monotonic() + _RETRY_S
            self._refused = wanted
            if isinstance(error, PolicyUnavailableError):
                return None
            raise
        self._trouble = None
        self._number.set(newest.number)
        return self._held

    def _may_hold(self, version: PolicyVersion) -> bool:
        """Whether the engine may change to `version` while others use it."""
        if self._held is None or self._users == 0:
            return True
        return self._held.version.run == version.run and _same_shape(self._held.version, version)

    def _load(self, version: PolicyVersion) -> Held:
        began = time.monotonic()
        held, self._held = self._held, None  # after a failed load, the state of the engine is unknown
        try:
            self._store.hold(self._holder, [version] if held is None else [held.version, version])
            self._store.verify(version, weights=self._host.reads(version))
            recipe = recipe_from(version.recipe(), version.id)
            in_place = held is not None and held.recipe.deterministic == recipe.deterministic
            if held is not None and in_place and _same_shape(held.version, version):
                held.hosted.swap(version)
                hosted, codec, kind = held.hosted, held.codec, "swap"
            else:
                if held is not None:
                    held.hosted.close()
                codec = TokenizerCodec.load(version.path)
                hosted = self._host.build(version, codec, deterministic=recipe.deterministic)
                kind = "build"
        except (PolicyError, RecipeError, OSError, RuntimeError) as error:
            if held is not None:
                held.hosted.close()
            if isinstance(error, PolicyError):
                raise
            # It was deleted in the meantime, or its parts do not fit together.
            raise PolicyIntegrityError(f"{version.path}: {error}") from error
        self._loads.labels(kind).inc()
        seconds = round(time.monotonic() - began, 3)
        logger.info("policy loaded", extra={"version": version.id, "kind": kind, "seconds": seconds})
        return Held(version, recipe, recipe.digest(), hosted, codec)


def _same_shape(left: PolicyVersion, right: PolicyVersion) -> bool:
    # The files of an adapter do not contain its base model.
    return left.manifest.base_model == right.manifest.base_model and all(
        left.manifest.files.get(name) == right.manifest.files.get(name) for name in _SHAPE_FILES
    )
