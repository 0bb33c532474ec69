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
from kbqa.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_POLL_S = 0.2  # how soon a published version is noticed by a request that waits for it
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

    Requests of one run share the engine and see its versions change between two turns. A newer version is
    fetched and checked in a thread of its own; meanwhile, requests for which the held one is new enough go on
    with it. Another run's request waits until they are done, so that no trajectory mixes runs.

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
        self._loading: PolicyVersion | None = None
        self._trouble: PolicyError | None = None  # why the last load failed
        self._refused = ("", "")  # the run and version of that
        self._retry_at = 0.0
        self._seen: tuple[str, float, PolicyVersion | None] = (
            "",
            0.0,
            None,
        )  # run, when, and its newest version
        self._clearing = False  # whether a load waits until nobody uses the engine
        self._closed = False
        self._turnstile = threading.Condition()

    @contextmanager
    def lease(self, run: str, at_least: int, wait_s: float) -> Iterator[Held]:
        """Use the newest version of `run`, or the held one while a newer one is loaded.

        Args:
            at_least: smallest number of a version that will do.

        Raises:
            NoPolicyError: none was published, or loaded, within `wait_s`.
            PolicyIntegrityError, PolicyMismatchError: the version cannot be loaded.
            PolicyUnavailableError: the engine fails, or does not answer within `wait_s`.
        """
        held = self._enter(run, at_least, time.monotonic() + wait_s)
        try:
            self._store.hold(self._holder, self._used())
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
        with self._turnstile:
            self._closed = True
            held = self._held
        if held is not None:
            held.hosted.close()

    def _enter(self, run: str, at_least: int, deadline: float) -> Held:
        age_s = 0.0
        while True:
            newest = self._newest(run, at_least, age_s)
            age_s = _POLL_S
            with self._turnstile:
                if self._held is not None and not self._held.hosted.alive:
                    self._held = None
                held = self._held
                if newest is not None:
                    serves = held is not None and _serves(held.version, newest, at_least)
                    if held is None or (held.version.run, held.version.id) != (newest.run, newest.id):
                        self._want(newest, needed=not serves)
                    if held is not None and serves and held.hosted.available and not self._clearing:
                        self._users += 1
                        return held
                if time.monotonic() > deadline:
                    raise self._why_not(run, at_least, newest)
                self._turnstile.wait(_POLL_S)

    def _newest(self, run: str, at_least: int, age_s: float) -> PolicyVersion | None:
        """The newest version of a run, as the store had it at most `age_s` ago; None if it is too old.

        Requests that wait for a version see what one of them has seen, so that dozens of them on each of many
        machines do not all ask the store.
        """
        now = time.monotonic()
        with self._turnstile:
            seen_run, seen_at, found = self._seen
            if seen_run == run and now < seen_at + age_s:
                return found if found is not None and found.number >= at_least else None
            self._seen = run, now, found if seen_run == run else None  # the others need not look meanwhile
        found = self._store.newest(run)
        with self._turnstile:
            if self._seen[:2] == (run, now):  # else somebody has looked since
                self._seen = run, now, found
        return found if found is not None and found.number >= at_least else None

    def _want(self, version: PolicyVersion, *, needed: bool) -> None:
        """Begin to load a version, unless the engine is used otherwise, or this failed just now.

        Args:
            needed: whether a request cannot do without it.

        Raises:
            PolicyError: the request needs it, and it cannot be loaded.
        """
        held, wanted = self._held, (version.run, version.id)
        if self._loading is not None or self._closed:
            return
        if held is not None and self._users and not _like(held.version, version):
            return
        if self._trouble is not None and time.monotonic() < self._retry_at:
            if isinstance(self._trouble, PolicyUnavailableError):
                return
            if self._refused == wanted:  # a newer version may be intact
                if needed:
                    raise self._trouble
                return
        self._loading = version
        threading.Thread(target=self._load, args=(version,), name="policy-load", daemon=True).start()

    def _why_not(self, run: str, at_least: int, newest: PolicyVersion | None) -> PolicyError:
        if newest is None:
            return NoPolicyError(f"run {run} has no version {at_least} or newer")
        if self._trouble is not None:
            return self._trouble
        held = self._held
        if held is not None and held.version.run == run and not held.hosted.available:
            return PolicyUnavailableError("the engine does not answer; it is tried again until it does")
        if self._loading is not None and self._loading.run == run and not self._users:
            return NoPolicyError(f"version {newest.id} of run {run} is still being loaded")
        return NoPolicyError(f"the engine is busy with another run than {run}")

    def _load(self, version: PolicyVersion) -> None:
        """Fetch a version, then hold it as soon as it may."""
        began, trouble = time.monotonic(), None
        try:
            self._store.hold(self._holder, [*self._used(), version])
            self._store.verify(version, weights=self._host.reads(version))
            if not self._change(version, recipe_from(version.recipe(), version.id)):
                return
            seconds = round(time.monotonic() - began, 3)
            logger.info("policy loaded", extra={"version": version.id, "seconds": seconds})
        except PolicyError as error:
            trouble = error
        except Exception as error:
            # It was deleted in the meantime, or its parts do not fit together.
            if not isinstance(error, RecipeError | OSError | RuntimeError):
                logger.exception("a version cannot be loaded", extra={"version": version.id})
            trouble = PolicyIntegrityError(f"{version.path}: {error}")
        finally:
            self._end_load(trouble, (version.run, version.id))

    def _end_load(self, trouble: PolicyError | None, refused: tuple[str, str]) -> None:
        with self._turnstile:
            self._loading, self._trouble, self._refused = None, trouble, refused
            self._clearing = False
            self._retry_at = time.monotonic() + _RETRY_S
            self._turnstile.notify_all()

    def _change(self, version: PolicyVersion, recipe: Recipe) -> bool:
        """Change to a verified version: in place, or once nobody uses the engine; False if it is closed."""
        with self._turnstile:
            held = self._held
            fits = (
                held is not None
                and held.recipe.deterministic == recipe.deterministic
                and _same_shape(held.version, version)
            )
            if held is not None and not (fits and held.version.run == version.run):
                self._clearing = True
                self._turnstile.wait_for(lambda: not self._users or self._held is None or self._closed)
                held = self._held
            if self._closed:
                return False
            self._held = held if fits else None
        try:
            if held is not None and fits:
                held.hosted.swap(version)
                hosted, codec, kind = held.hosted, held.codec, "swap"
            else:
                if held is not None:
                    held.hosted.close()
                codec = TokenizerCodec.load(version.path)
                hosted = self._host.build(version, codec, deterministic=recipe.deterministic)
                kind = "build"
        except BaseException:
            if held is not None:  # its state is unknown
                self.discard(held)
            raise
        self._loads.labels(kind).inc()
        self._number.set(version.number)
        with self._turnstile:
            self._held = Held(version, recipe, recipe.digest(), hosted, codec)
        return True

    def _used(self) -> list[PolicyVersion]:
        held, loading = self._held, self._loading
        return [*([held.version] if held is not None else []), *([loading] if loading is not None else [])]


def _serves(held: PolicyVersion, newest: PolicyVersion, at_least: int) -> bool:
    """Whether a request may go on with what is held: the newest version, or an earlier one of its line."""
    if held.run != newest.run:
        return False
    # A version of the same number or a higher one, but another id, was undone by a restore.
    return held.id == newest.id or at_least <= held.number < newest.number


def _like(left: PolicyVersion, right: PolicyVersion) -> bool:
    """Whether the engine can change from one to the other while requests use it."""
    return left.run == right.run and _same_shape(left, right)


def _same_shape(left: PolicyVersion, right: PolicyVersion) -> bool:
    # The files of an adapter do not contain its base model.
    return left.manifest.base_model == right.manifest.base_model and all(
        left.manifest.files.get(name) == right.manifest.files.get(name) for name in _SHAPE_FILES
    )
