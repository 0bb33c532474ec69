"""The engines that compute a version's completions: in this process, or a vLLM server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.base import Policy
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.vllm import Fleet, Precision, Sent, VllmPolicy, VllmServer, Weights
from kbqa.policy_store import Manifest, PolicyVersion
from kbqa.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from kbqa.policies.adapters import AdaptedModel
    from kbqa.policies.in_process import InProcessPolicy

_WEIGHTS = "model.safetensors"


class Hosted(Protocol):
    """A policy in an engine that can load other versions of the same shape."""

    @property
    def policy(self) -> Policy: ...

    @property
    def alive(self) -> bool:
        """Whether it still computes, or will again by itself."""
        ...

    @property
    def available(self) -> bool:
        """Whether it computes now."""
        ...

    def swap(self, version: PolicyVersion) -> None:
        """Change to another version while the policy is used.

        Raises:
            PolicyError, OSError, RuntimeError: it failed; the state of the policy is then unknown.
        """
        ...

    def close(self) -> None:
        """Stop computing; calls in flight fail."""
        ...


class Host(Protocol):
    """Makes engines of versions."""

    def build(self, version: PolicyVersion, codec: TokenizerCodec, *, deterministic: bool) -> Hosted:
        """Build an engine for the version, independent of any earlier one.

        Args:
            deterministic: whether the same request must always give exactly the same numbers. A vLLM server
                ignores this; its own options decide.

        Raises:
            PolicyError, OSError, RuntimeError: as `Hosted.swap`.
        """
        ...

    def unready(self) -> str | None:
        """None if an engine could be built, otherwise why not."""
        ...

    def reads(self, version: PolicyVersion) -> bool:
        """Whether it reads the version's weights from files, which therefore have to be verified."""
        ...


class InProcess:
    """Engines of transformers models in this process.

    Args:
        max_rows: most completions computed at a time.
        searches: as that of `open_in_process`.
    """

    def __init__(self, max_rows: int, *, searches: bool = True) -> None:
        self._max_rows, self._searches = max_rows, searches

    def build(self, version: PolicyVersion, codec: TokenizerCodec, *, deterministic: bool) -> Hosted:
        return open_in_process(
            version.path,
            version.manifest,
            codec,
            version.id,
            searches=self._searches,
            max_rows=self._max_rows,
            deterministic=deterministic,
        )

    def unready(self) -> str | None:
        return None

    def reads(self, version: PolicyVersion) -> bool:
        return True


def open_in_process(
    path: Path,
    manifest: Manifest | None,
    codec: TokenizerCodec,
    label: str,
    *,
    searches: bool = True,
    **options: Any,
) -> Hosted:
    """An engine of a model in this process.

    Args:
        manifest: what the directory says it is; None holds a whole model.
        label: full id of the version, or whatever its completions should name.
        searches: whether questions are answered by a beam search, if the version's recipe says so; only that
            needs a re-ranker, which takes time to load, and memory.
        options: as those of `open_policy`.

    Raises:
        PolicyIntegrityError: it is no model that can be loaded.
        PolicyMismatchError: it computes other probabilities than its trainer.
        BaseNotFoundError: it is an adapter, whose base model is not on this machine.
    """
    # Torch takes seconds to import; until there is a policy a process can say so without it.
    from kbqa.policies.adapters import AdaptedModel, require_agreement
    from kbqa.policies.in_process import load_model, open_policy

    adapted = None
    if manifest is not None and manifest.kind == "lora":
        adapted = AdaptedModel.load(path, manifest.base_model, manifest.probe)
    model = load_model(path) if adapted is None else adapted.model
    if adapted is None and manifest is not None and manifest.probe is not None:
        require_agreement(
            model, manifest.probe, label, "these are not the weights that its trainer published"
        )
    hosted = _InProcess(open_policy(model, codec, label, **options), adapted, searches=searches)
    if manifest is not None:
        hosted.rerank(PolicyVersion(path, manifest))
    return hosted


class _InProcess:
    def __init__(self, policy: InProcessPolicy, adapted: AdaptedModel | None, *, searches: bool) -> None:
        self.policy, self._adapted, self._searches = policy, adapted, searches

    def rerank(self, version: PolicyVersion) -> None:
        """Let a chooser that searches use the re-ranker of its version, if there is one."""
        from kbqa.policies.adapters import load_reranker
        from kbqa.policies.chooser.policy import ChooserPolicy

        if self._adapted is None or not self._searches or not isinstance(self.policy, ChooserPolicy):
            return
        beam, base_model = version.recipe().get("evaluation", {}).get("beam", 1), version.manifest.base_model
        assert base_model is not None
        chooser = self._adapted.model
        self.policy.reranker = load_reranker(version.path, base_model, chooser) if beam > 1 else None

    @property
    def alive(self) -> bool:
        return self.policy.alive

    @property
    def available(self) -> bool:
        return self.policy.alive

    def swap(self, version: PolicyVersion) -> None:
        if (adapted := self._adapted) is not None:
            probe = version.manifest.probe
            self.policy.swap(version.id, lambda _: adapted.swap(version.path, probe))
            self.rerank(version)
            return
        from safetensors.torch import load_file

        weights = load_file(version.path / _WEIGHTS)
        self.policy.swap(version.id, lambda model: _replace_weights(model, weights))

    def close(self) -> None:
        self.policy.close()


class OnVllm:
    """One or more vLLM servers as engine. They belong to this process: nothing else may change their weights.

    Args:
        precision, timeout_s: as those of `VllmPolicy`.
        patience_s: as that of `Fleet`.
        sender: address of the trainer's sender of whole weights; None reads files.
        verify: makes sure of a version's files; needed with a sender, for when it does not answer.
    """

    def __init__(
        self,
        servers: Sequence[VllmServer],
        metrics: Metrics,
        *,
        precision: Precision,
        timeout_s: float,
        patience_s: float = 30.0,
        sender: tuple[str, int] | None = None,
        verify: Callable[[PolicyVersion], None] = lambda version: None,
    ) -> None:
        self._servers, self._sender, self._verify = servers, sender, verify
        self._policy = partial(VllmPolicy, metrics=metrics, precision=precision, timeout_s=timeout_s)
        self._fleet = partial(Fleet, metrics=metrics, patience_s=patience_s)

    def build(self, version: PolicyVersion, codec: TokenizerCodec, *, deterministic: bool) -> Hosted:
        policies = [self._policy(server, codec) for server in self._servers]
        hosted = _OnVllm(self._fleet(policies), self._sent)
        try:
            hosted.swap(version)
        except BaseException:
            hosted.close()
            raise
        return hosted

    def unready(self) -> str | None:
        reasons = [server.unready() for server in self._servers]
        return None if None in reasons else "; ".join(str(reason) for reason in reasons)

    def reads(self, version: PolicyVersion) -> bool:
        return self._sender is None or _WEIGHTS not in version.manifest.files

    def _sent(self, version: PolicyVersion) -> Sent | None:
        """How a version comes from the sender; None if it is read."""
        if self._sender is None or self.reads(version):
            return None
        from kbqa.policies.vllm.sender import ask_for  # it needs torch

        sender = self._sender
        return Sent(
            lambda processes: asdict(ask_for(sender, version.run, version.id, processes)),
            version.manifest.files[_WEIGHTS],
            (version.path / _WEIGHTS).stat().st_size,
            partial(self._verify, version),
        )


class _OnVllm:
    def __init__(self, policy: Fleet, sent: Callable[[PolicyVersion], Sent | None]) -> None:
        self.policy, self._sent = policy, sent

    @property
    def alive(self) -> bool:
        return self.policy.alive

    @property
    def available(self) -> bool:
        return self.policy.available

    def swap(self, version: PolicyVersion) -> None:
        manifest = version.manifest
        label = f"{version.run}/{version.id}"
        sent = self._sent(version)
        self.policy.hold(Weights(label, version.id, manifest.kind, version.path, manifest.probe, sent))

    def close(self) -> None:
        self.policy.close()


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
