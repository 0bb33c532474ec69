"""What a plan says of speed, disk and the engine: estimates, on which no decision depends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbqa.planning.machines import Machine
from kbqa.planning.needs import EngineNeeds
from kbqa.planning.step import Workload
from kbqa.recipes import Recipe
from kbqa.training.grpo import GrpoConfig

# Products a second: an H100's in bf16, and a CPU core's in fp32.
_PEAK = {"cuda": 989e12, "cpu": 5e10}
# Share of them that training reaches: long rows, and the short segments of trees.
_UTILISATION = {"linear": 0.2, "tree": 0.08}
_DISK = 1e9  # bytes a second
_PASSES = 3  # over a version's files: they are written, hashed, and read by the engine
_BF16, _FP32 = 2, 4
_MOMENTS = 2


@dataclass(frozen=True, slots=True)
class Engine:
    """What vLLM holds on its GPUs, in bytes.

    Attributes:
        weights: in bf16.
        kv_a_token: keys and values of a token.
        kv_an_episode: of the longest episode; vLLM needs room for at least one.
        max_model_len, lora_rank: see `EngineNeeds`.
    """

    weights: int
    kv_a_token: int
    kv_an_episode: int
    max_model_len: int
    lora_rank: int

    @property
    def least(self) -> int:
        """The least memory with which vLLM can serve the recipe."""
        return self.weights + self.kv_an_episode


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a run learns.

    Attributes:
        tokens_a_second: trained tokens of all GPUs.
        seconds_a_step: for the update of a step whose episodes are all as long as they may be.
    """

    tokens_a_second: float
    seconds_a_step: float


@dataclass(frozen=True, slots=True)
class Version:
    """A published version, and a checkpoint: bytes, and seconds until an engine computes with a version."""

    bytes: int
    checkpoint_bytes: int
    seconds: float


def engine_of(architecture: Mapping[str, Any], parameters: int, needs: EngineNeeds) -> Engine:
    """The engine of a model with this configuration."""
    heads = int(architecture["num_attention_heads"])
    width = int(architecture.get("head_dim") or architecture["hidden_size"] // heads)
    kv = (
        2
        * int(architecture["num_hidden_layers"])
        * int(architecture.get("num_key_value_heads", heads))
        * width
    )
    a_token = kv * _BF16
    return Engine(parameters * _BF16, a_token, a_token * needs.context, needs.context, needs.lora_rank)


def pace_of(recipe: Recipe, machine: Machine, parameters: int, work: Workload) -> Pace:
    """The pace of updates: 6 products for each weight and token, 2 more for each pass that is repeated."""
    repeated = work.config.gradient_checkpointing + bool(work.config.surrogate.kl_coefficient)
    reached = _PEAK[machine.kind] * _UTILISATION["tree" if recipe.rollout.kind == "tree" else "linear"]
    tokens = machine.ranks * reached / ((6 + 2 * repeated) * parameters)
    episodes = recipe.schedule.questions_per_step * recipe.rollout.width
    return Pace(tokens, episodes * recipe.rollout.max_tokens * work.config.epochs / tokens)


def version_of(parameters: int, trained: int, config: GrpoConfig) -> Version:
    """The files of a version, which are the adapter alone if there is one, and of a checkpoint."""
    size = _BF16 if config.precision == "bf16" else _FP32
    published = size * (trained if config.adapter is not None else parameters)
    return Version(published, trained * _FP32 * (1 + _MOMENTS), _PASSES * published / _DISK)
