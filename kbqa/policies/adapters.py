"""LoRA adapters in an in-process engine: merged into the base's weights, so that they cost no time.

W' = W + (alpha / r) B A, with W [out, in], A [r, in], B [out, r] (Hu et al. 2022, section 4.1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from kbqa.bases import find_base
from kbqa.errors import PolicyIntegrityError, PolicyMismatchError
from kbqa.policies.chooser.beginning import begin_chooser, is_encoder, tags_of
from kbqa.policies.chooser.model import ATTENTIVE, RECURRENT, Chooser, renewed
from kbqa.policies.chooser.reranker import Reranker
from kbqa.policies.probe import Probe
from kbqa.policies.transformers import load_language_model

RERANKER = "reranker"
"""The directory of a version's re-ranker, an adapter of the same base."""

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX, _DOWN, _UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"  # peft's names of tensors
_ATTENTIVE = f"{_PREFIX}head.layers."
# Versions that began with the same one use its re-ranker together: a copy each would take 90 MB.
_rerankers: WeakValueDictionary[tuple[Path, Path, str], Reranker] = WeakValueDictionary()
_OTHERWISE = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out")


class AdaptedModel:
    """A base model with one adapter at a time merged into its weights.

    Args:
        model: the base model; changed in place.
        base_model: name of the base model, for messages.

    Attributes:
        model: the base model with the adapter merged in; as fast as the base model.
    """

    def __init__(self, model: Any, base_model: str) -> None:
        self.model, self._base_model = model, base_model
        # Original weights of adapted layers: subtracting an adapter again would add rounding errors.
        self._unmerged: dict[str, Tensor] = {}

    @classmethod
    def load(cls, adapter: Path, base_model: str | None, probe: Probe | None) -> AdaptedModel:
        """Load an adapter's base model from this machine, and merge the adapter into it.

        Args:
            adapter: directory of the version.
            base_model: name of the base model in the version's manifest.
            probe: the version's probe; None if it has none.

        Raises:
            BaseNotFoundError: the base is not on this machine; says what to install.
            PolicyIntegrityError: the base or the adapter cannot be loaded, or they do not fit each other.
            PolicyMismatchError: the adapter was trained on another base model.
        """
        if base_model is None:
            raise PolicyIntegrityError(f"{adapter}: the adapter does not name its base model")
        adapted = cls(_load_base(find_base(base_model).directory, adapter), base_model)
        adapted.swap(adapter, probe)
        return adapted

    @torch.no_grad()
    def swap(self, adapter: Path, probe: Probe | None) -> None:
        """Replace the adapter; the base model is not read again.

        Raises:
            PolicyIntegrityError: as `load`.
            PolicyMismatchError: as `load`; the model must not be used afterwards.
        """
        updates, scale, whole = _read(adapter)
        own = dict((*self.model.named_parameters(), *self.model.named_buffers()))
        for name, tensor in whole.items():
            if name not in own or own[name].shape != tensor.shape:
                raise PolicyIntegrityError(f"{adapter}: {name} does not fit base model {self._base_model}")
        saved = {name.partition(".")[0] for name in whole}
        if missing := [name for name in own if name.partition(".")[0] in saved and name not in whole]:
            raise PolicyIntegrityError(
                f"{adapter}: {missing[0]} is missing: the file is damaged, or was written by another version "
                "of kbqa; train the policy again"
            )
        for name, (down, up) in updates.items():
            self._keep(name, (up.shape[0], down.shape[1]), adapter)
        for name, base in self._unmerged.items():
            weight = self.model.get_submodule(name).weight
            if (update := updates.get(name)) is None:
                weight.copy_(base)
            else:
                down, up = (part.to(base) for part in update)
                weight.copy_(torch.addmm(base, up, down, alpha=scale))
        for name, tensor in whole.items():
            own[name].copy_(tensor)
        if probe is not None:
            require_agreement(
                self.model,
                probe,
                f"{adapter} in base model {self._base_model}",
                "check that it is the base model that the adapter was trained on",
            )

    def _keep(self, name: str, shape: tuple[int, int], adapter: Path) -> None:
        """Keep a copy of a layer's original weights."""
        try:
            weight = self.model.get_submodule(name).weight
        except AttributeError:
            weight = None
        tied = weight is self.model.get_input_embeddings().weight  # a change would alter inputs, too
        if weight is None or tuple(weight.shape) != shape or tied:
            raise PolicyIntegrityError(f"{adapter}: {name} does not fit base model {self._base_model}")
        if name not in self._unmerged:
            self._unmerged[name] = weight.detach().clone()


@torch.no_grad()
def require_agreement(model: Any, probe: Probe, what: str, advice: str) -> None:
    """Compare a model's log-probabilities with its trainer's.

    Args:
        model: a causal language model in this process.
        what, advice: for the message: what differs, and what to do.

    Raises:
        PolicyMismatchError: they differ by more than rounding explains.
    """
    ids = torch.tensor([probe.token_ids], device=model.device)
    start = len(probe.token_ids) - len(probe.logprobs)
    logprobs = model(input_ids=ids, use_cache=False).logits[0, start - 1 : -1].log_softmax(-1)
    gap = probe.gap(logprobs.gather(-1, ids[0, start:, None])[:, 0].tolist())
    if not gap <= probe.largest_gap("float32"):  # `not <=`, so that NaN fails, too
        raise PolicyMismatchError(
            f"{what}: log-probabilities differ from the trainer's by {gap:.2g} on average: {advice}"
        )


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds an adapter, and not whole weights."""
    return (directory / _CONFIG).is_file()


def load_whole(directory: Path) -> Any:
    """The model of a directory with whole weights: a language model or a chooser.

    Raises:
        PolicyIntegrityError: the directory holds no model that can be loaded.
    """
    try:
        config = json.loads((directory / "config.json").read_bytes())
        chooses = Chooser.__name__ in config.get("architectures", ())
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise PolicyIntegrityError(f"{directory}: no readable config.json ({error})") from error
    return Chooser.load(directory) if chooses else load_language_model(directory)


def load_adapted(adapter: Path) -> Any:
    """The base model that an adapter's own configuration names, with the adapter merged into it.

    Raises:
        BaseNotFoundError, PolicyIntegrityError: as `AdaptedModel.load`.
    """
    return AdaptedModel.load(adapter, _base_of(adapter), None).model


def load_reranker(version: Path, base_model: str, chooser: Chooser) -> Reranker | None:
    """The re-ranker of a version of a chooser, or else that of the version with which its training began.

    Args:
        base_model: name of the version's base model.

    Returns:
        One that is in use already, if it was loaded from the same files. None if neither has one.

    Raises:
        BaseNotFoundError, PolicyIntegrityError: as `AdaptedModel.load`.
    """
    base, adapter = find_base(base_model).directory, version / RERANKER
    if not is_adapter(adapter):
        begun = _base_of(base) if is_adapter(base) else None
        return None if begun is None else load_reranker(base, begun, chooser)
    key = (adapter.resolve(), base.resolve(), chooser.config.to_json_string())
    if (model := _rerankers.get(key)) is None:
        model = Reranker.begin(chooser, base)
        AdaptedModel(model, base_model).swap(adapter, None)
        _rerankers[key] = model
    return model


def _load_base(base: Path, adapter: Path) -> Any:
    """The model that an adapter was trained on; it may be an adapted one itself."""
    if is_adapter(base):
        return load_adapted(base)
    if is_encoder(base):
        model, _ = begin_chooser(base, tags_of(adapter, base), seed=0, head=_head_of(adapter))
        return model  # the adapter brings the head's weights
    return load_whole(base)


def _base_of(adapter: Path) -> str | None:
    """The base model that an adapter's own configuration names."""
    try:
        return json.loads((adapter / _CONFIG).read_bytes()).get("base_model_name_or_path") or None
    except (OSError, ValueError, AttributeError) as error:
        raise PolicyIntegrityError(f"{adapter}: the adapter cannot be loaded ({error!r})") from error


def _head_of(adapter: Path) -> str:
    """Which head a chooser's adapter has."""
    try:
        with safe_open(adapter / _WEIGHTS, "pt") as file:
            names = file.keys()
        return ATTENTIVE if any(name.startswith(_ATTENTIVE) for name in names) else RECURRENT
    except (OSError, SafetensorError) as error:
        raise PolicyIntegrityError(f"{adapter}: the adapter cannot be loaded ({error!r})") from error


def _read(adapter: Path) -> tuple[Mapping[str, tuple[Tensor, Tensor]], float, Mapping[str, Tensor]]:
    """A and B of each adapted layer, alpha / r, and the parameters that the adapter holds in full.

    Raises:
        PolicyIntegrityError: the adapter cannot be read, or is not a plain LoRA adapter.
    """
    try:
        config = json.loads((adapter / _CONFIG).read_bytes())
        tensors = load_file(adapter / _WEIGHTS)
        scale = float(config["lora_alpha"]) / int(config["r"])
        saved = tuple(f"{_PREFIX}{name}." for name in config.get("modules_to_save") or ())
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise PolicyIntegrityError(f"{adapter}: the adapter cannot be loaded ({error!r})") from error
    whole = renewed({name.removeprefix(_PREFIX): t for name, t in tensors.items() if name.startswith(saved)})
    parts = {name: tensor for name, tensor in tensors.items() if not name.startswith(saved)}
    strange = [key for key in _OTHERWISE if config.get(key)]
    strange += [name for name in parts if not (name.startswith(_PREFIX) and name.endswith((_DOWN, _UP)))]
    if config.get("peft_type") != "LORA" or strange:
        raise PolicyIntegrityError(
            f"{adapter}: only plain LoRA adapters are supported ({', '.join(strange[:3])})"
        )
    names = {name.removesuffix(_DOWN).removesuffix(_UP) for name in parts}
    try:
        pairs = {
            name.removeprefix(_PREFIX): (parts[name + _DOWN], parts[name + _UP]) for name in sorted(names)
        }
    except KeyError as error:
        raise PolicyIntegrityError(f"{adapter}: {error} is missing") from error
    return pairs, scale, whole
