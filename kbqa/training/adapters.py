"""Low-rank adapters (LoRA; Hu et al. 2022): a few trained parameters beside a frozen model.

The model without its adapter is the reference of the KL penalty, so no second copy is held.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from kbqa.errors import ConfigurationError, PolicyIntegrityError
from kbqa.policies.chooser.model import Chooser


@dataclass(frozen=True, slots=True)
class Adapter:
    """Options of an adapter.

    Attributes:
        rank: r; the update of a matrix is a product of two matrices with r columns and r rows.
        alpha: the update is scaled by alpha / r.
        targets: names of the linear layers that are adapted.
        quantised: whether the frozen weights are held in 4 bits (QLoRA; Dettmers et al. 2023).
    """

    rank: int = 32
    alpha: int = 64
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    quantised: bool = False


def add_adapter(model: Any, adapter: Adapter, seed: int, base_model: str | None = None) -> None:
    """Freeze a model and insert a fresh adapter, in place; the model's output is unchanged.

    The head of a chooser is trained in full and saved with the adapter.

    Args:
        base_model: name of the model, which the adapter's configuration keeps.

    Raises:
        ConfigurationError: the model has no layer of these names.
    """
    chooses = isinstance(model, Chooser)
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        target_modules=list(adapter.targets),
        task_type=None if chooses else "CAUSAL_LM",
        # It has no pretrained weights. peft also takes modules whose names only end like this.
        modules_to_save=["head"] if chooses else None,
    )
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model.add_adapter(config)
        config.base_model_name_or_path = base_model  # transformers has set the name of a directory
    except ValueError as error:
        raise ConfigurationError(f"optimisation.lora.targets: {error}") from error


def has_adapter(model: Any) -> bool:
    """Whether a model holds an adapter; if so, only the adapter is trained and saved."""
    return any(isinstance(module, BaseTunerLayer) for module in model.modules())


def merged(model: Any) -> Any:
    """A copy of a model with its adapter merged into the weights, which are trainable again."""
    twin = copy.deepcopy(model)
    for name, module in list(twin.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            parent, _, own = name.rpartition(".")
            setattr(twin.get_submodule(parent), own, module.get_base_layer())
        elif isinstance(module, ModulesToSaveWrapper):
            [whole] = module.modules_to_save.values()
            setattr(twin, name, whole)
    # Left behind by transformers' `add_adapter`; with it the model would save only an adapter.
    twin._hf_peft_config_loaded = False
    del twin.peft_config
    twin.requires_grad_(True)
    if isinstance(twin, Chooser):
        twin.bert.embeddings.requires_grad_(False)
    return twin


@contextmanager
def without_adapter(model: Any) -> Iterator[None]:
    """Disable a model's adapter while the context lasts."""
    adapting = (BaseTunerLayer, ModulesToSaveWrapper)
    layers = [module for module in model.modules() if isinstance(module, adapting)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def load_quantised(directory: Path, device: torch.device) -> Any:
    """A causal language model whose linear layers are held in 4-bit NormalFloat.

    Raises:
        ConfigurationError: there is no GPU, or bitsandbytes is not installed.
        PolicyIntegrityError: the directory holds no model that can be loaded.
    """
    if device.type != "cuda":
        raise ConfigurationError("optimisation.lora.quantised needs a GPU: set it to false, or train on one")
    four_bits = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    try:
        return AutoModelForCausalLM.from_pretrained(
            directory,
            quantization_config=four_bits,
            device_map={"": device},
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except ImportError as error:
        raise ConfigurationError(f"QLoRA needs bitsandbytes: pip install 'kbqa[qlora]' ({error})") from error
    except (OSError, ValueError, RuntimeError) as error:
        raise PolicyIntegrityError(f"{directory}: the model cannot be loaded ({error})") from error
