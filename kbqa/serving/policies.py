"""The policy that answers, and its stand-ins; `kbqa.serving.promotion` follows the promoted version."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kbqa.confidence import Calibration
from kbqa.errors import NoPolicyError, PolicyChangingError, PolicyIntegrityError
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import recipe_from
from kbqa.serving.hosting import Host
from kbqa.serving.players import Players
from kbqa.serving.trial import Outcome

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A policy that answers.

    Attributes:
        run: name of the policy: the run that has trained it, `reader`, or the name of an external model.
        version: full id, or the model name of an external model.
        recipe: name of the recipe that it was trained with or, for an external model, plays by.
        players: what plays its episodes.
        close: frees it; called once, when nobody uses it any more.
        alive: whether it can still answer, if not now, then later by itself.
        graphs: names of the graphs that it answers for; empty for all.
        calibration: how sure its answers are; None where that was not measured.
        available: whether it can answer now.
    """

    run: str
    version: str
    recipe: str
    players: Players
    close: Callable[[], None]
    alive: Callable[[], bool]
    graphs: tuple[str, ...] = ()
    calibration: Calibration | None = None
    available: Callable[[], bool] = lambda: True

    def answers_for(self, kg: str | None) -> bool:
        """Whether it is meant for a graph, or for the graph that a view (GRAPH@VIEW) is of; None is any."""
        return kg is None or not self.graphs or kg in self.graphs or kg.partition("@")[0] in self.graphs


class Lease:
    """A question's hold on a policy: it stays loaded and unchanged until it is released.

    Attributes:
        fallback: why it is not the first choice; None if it is.
        count: takes note of how the question ended.
    """

    def __init__(
        self,
        served: ServedPolicy,
        released: Callable[[], None],
        *,
        count: Callable[[Outcome], None] = lambda _: None,
        fallback: str | None = None,
    ) -> None:
        self.served, self.fallback, self.count = served, fallback, count
        self._released = released

    def release(self) -> None:
        self._released()


class PolicySource(Protocol):
    """Where the gateway gets its policy from."""

    def lease(self, kg: str | None = None, /) -> Lease:
        """The policy that answers now.

        Args:
            kg: graph of the question; None if it does not matter.

        Raises:
            NoPolicyError: there is none (yet); says what to do.
            PolicyChangingError: there will be one in a moment; ask again.
        """
        ...

    def unready(self) -> str | None:
        """None if there is a policy, otherwise why not."""
        ...

    def start(self) -> None:
        """Start to look for a policy; does not wait."""
        ...

    def stop(self) -> None:
        """Close the policy; users of it get a `PolicyUnavailableError`."""
        ...


class FixedPolicy:
    """A policy that never changes, such as an external model."""

    def __init__(self, served: ServedPolicy) -> None:
        self._served = served

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._served.close()

    def lease(self, kg: str | None = None, /) -> Lease:
        return Lease(self._served, lambda: None)

    def unready(self) -> str | None:
        return None if self._served.alive() else f"{self._served.version} is closed"


class PoliciesInTurn:
    """The first of several sources that can answer; a lease of a later one says why the earlier ones cannot.

    If a policy fails in the middle of a question, this question fails. The following ones are answered by
    another policy until the first is available again.
    """

    def __init__(self, sources: Sequence[PolicySource]) -> None:
        self._sources = tuple(sources)

    def start(self) -> None:
        for source in self._sources:
            source.start()

    def stop(self) -> None:
        for source in self._sources:
            source.stop()

    def lease(self, kg: str | None = None, /) -> Lease:
        reasons = list[str]()
        for source in self._sources:
            if (reason := source.unready()) is None:
                try:
                    lease = source.lease(kg)
                except PolicyChangingError:
                    raise
                except NoPolicyError as error:  # gone since
                    reason = str(error)
                else:
                    # A source may have had to choose, too.
                    lease.fallback = "; ".join(filter(None, [*reasons, lease.fallback])) or None
                    return lease
            reasons.append(reason)
        raise NoPolicyError("; ".join(reasons))

    def unready(self) -> str | None:
        reasons = [source.unready() for source in self._sources]
        return None if None in reasons else "; ".join(str(reason) for reason in reasons)


class PoliciesByGraph(PoliciesInTurn):
    """A first choice for the graphs that it was trained on, and a reader for all others.

    The reader also answers while the first choice is not available. Without a reader, the first choice
    answers for every graph.
    """

    def __init__(self, first: PolicySource, reader: PolicySource) -> None:
        super().__init__((first, reader))
        self._reader = reader

    def lease(self, kg: str | None = None, /) -> Lease:
        lease = super().lease(kg)
        if lease.served.answers_for(kg) or self._reader.unready() is not None:
            return lease
        try:
            readers = self._reader.lease(kg)
        except NoPolicyError:  # gone since
            return lease
        # That a graph has no policy of its own is no failure: only an earlier one is told.
        readers.fallback = lease.fallback
        lease.release()
        return readers


def check_files(store: PolicyStore, version: PolicyVersion) -> None:
    """Bring a version's files to this machine and check them.

    Raises:
        PolicyIntegrityError: they do not match the manifest.
    """
    try:
        store.verify(version)
    except OSError as error:  # it was deleted in the meantime
        raise PolicyIntegrityError(f"{version.path}: {error}") from error


def open_version(version: PolicyVersion, host: Host) -> ServedPolicy:
    """Load a version whose files have been checked; its recipe says how it plays.

    Several adapters can be loaded at the same time. Full weights in a vLLM server replace the previous ones;
    questions that are still being answered with those fail with a `PolicyUnavailableError`, because an
    answer must come from a single version.

    Args:
        host: opens the version in an engine.

    Raises:
        PolicyIntegrityError: the files are no model.
        BaseNotFoundError: it is an adapter, whose base model is not on this machine.
        PolicyMismatchError: the engine computes other probabilities than the version's trainer.
        PolicyUnavailableError: the server does not hold the version.
        RecipeError: its recipe is not one of this release.
    """
    started = time.monotonic()
    recipe = recipe_from(version.recipe(), source=f"{version.path}/recipe.json")
    codec = TokenizerCodec.load(version.path)
    hosted = host.build(version, codec, deterministic=False)
    logger.info(
        "policy loaded", extra={"version": version.id, "seconds": round(time.monotonic() - started, 2)}
    )
    return ServedPolicy(
        run=version.run,
        version=version.id,
        recipe=recipe.name,
        players=Players.of(recipe, hosted.policy, codec).interactive(),
        close=hosted.close,
        alive=lambda: hosted.alive,
        graphs=version.manifest.graphs,
        calibration=version.manifest.calibration,
        available=lambda: hosted.available,
    )
