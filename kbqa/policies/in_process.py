"""Opens a model in this process as a policy, according to the kind of model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from kbqa.policies.adapters import is_adapter, load_adapted, load_whole
from kbqa.policies.base import Codec, Policy
from kbqa.policies.chooser.model import Chooser
from kbqa.policies.chooser.policy import ChooserPolicy
from kbqa.policies.transformers import TransformersPolicy


class InProcessPolicy(Policy, Protocol):
    """A policy whose model is in this process."""

    @property
    def alive(self) -> bool:
        """Whether it still computes."""
        ...

    def swap(self, version: str, change: Callable[[Any], None]) -> None:
        """Let `change` replace the model's weights while the policy is used."""
        ...

    def close(self) -> None:
        """Stop computing; calls in flight fail."""
        ...


def load_model(directory: Path) -> Any:
    """Load the model of a Hugging Face directory, fp32, safetensors only: a language model or a chooser.

    An adapter is merged into the base model that its configuration names.

    Raises:
        PolicyIntegrityError: the directory holds no model that can be loaded.
        BaseNotFoundError: it is an adapter, whose base model is not on this machine.
    """
    return load_adapted(directory) if is_adapter(directory) else load_whole(directory)


def open_policy(
    model: Any,
    codec: Codec,
    version: str,
    *,
    longest: int | None = None,
    max_rows: int = 64,
    cached_tokens: int = 65536,
    deterministic: bool = False,
) -> InProcessPolicy:
    """Open an engine that computes with a model.

    Args:
        version: full id of the version that the model holds.
        longest: maximum tokens of an episode, if less than the model's own limit.
        max_rows, cached_tokens: of a language model; see `TransformersPolicy`.
        deterministic: whether the same request must always give exactly the same numbers.
    """
    if isinstance(model, Chooser):
        return ChooserPolicy(model, version, deterministic=deterministic)
    if deterministic:
        # Other rows of a batch, and cached prefixes, change the last digits of a sum.
        max_rows, cached_tokens = 1, 0
    length = int(model.config.max_position_embeddings)
    length = length if longest is None else min(length, longest)
    return TransformersPolicy(
        model, codec, version, max_length=length, max_rows=max_rows, cached_tokens=cached_tokens
    )
