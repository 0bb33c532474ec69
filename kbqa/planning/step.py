"""The memory of a training step, measured by computing it on fake tensors.

The step is `kbqa.training.grpo_step` with the model's own classes, optimiser and sharding; nothing of it is
estimated. It is computed with two and with three layers, from which follows what any number of layers needs,
because all layers are alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from kbqa.planning.four_bits import hold_in_four_bits
from kbqa.planning.meter import Meter, Scalars
from kbqa.training.adapters import add_adapter
from kbqa.training.grpo import GrpoConfig, grpo_step, make_optimiser
from kbqa.training.likelihood import Likelihood, likelihood_of
from kbqa.training.ranks import Ranks
from kbqa.trajectory import TrainingSample

_FEW, _MORE = 2, 3  # layers
_ROWS = 2  # rows of a process: when the second is computed, the gradients of the first are there
_ATTENTION = "kbqa_planned"


@dataclass(frozen=True, slots=True)
class Workload:
    """What a training step computes.

    Attributes:
        architecture: values of the model's config.json.
        config: as in training; its `token_budget` is the length of the rows.
        episode: tokens of the longest episode.
        written: share of an episode's tokens that the policy writes.
        ranks: processes that share the step.
        cuda: whether it runs on GPUs, on which the optimiser updates all parameters at once.
    """

    architecture: Mapping[str, Any]
    config: GrpoConfig
    episode: int
    written: float
    ranks: int = 1
    cuda: bool = True

    @property
    def row(self) -> int:
        """Tokens of the longest row."""
        return max(self.config.token_budget, self.episode)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of each process, by part.

    Attributes:
        weights, gradients, moments, reference: held for the whole run; a shard of each, if there are several
            processes.
        activations: at the fullest moment of forward and backward pass, except for logits; the copies of
            weights in bf16, and gathered ones, are part of it.
        logits: at that moment, with everything of their shape.
        optimiser: temporary values of the optimiser, when there are no activations.
        trained: number of trained parameters, of all processes.
    """

    weights: int
    gradients: int
    moments: int
    reference: int
    activations: int
    logits: int
    optimiser: int
    trained: int

    @property
    def held(self) -> int:
        """What is held for the whole run."""
        return self.weights + self.gradients + self.moments + self.reference

    @property
    def peak(self) -> int:
        return self.held + max(self.activations + self.logits, self.optimiser)

    def towards(self, other: Memory, times: float) -> Memory:
        """On the line through this and another one."""
        return Memory(
            *(
                round((1 - times) * getattr(self, field.name) + times * getattr(other, field.name))
                for field in fields(self)
            )
        )


def memory_of(work: Workload) -> Memory:
    """The memory of a step with all layers."""
    layers = int(work.architecture["num_hidden_layers"])
    few, more = min(layers, _FEW), min(layers, _MORE)
    first = _measured(work, few)
    return first if more == few else first.towards(_measured(work, more), (layers - few) / (more - few))


def parameters_of(architecture: Mapping[str, Any]) -> int:
    """Number of parameters of a model."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(configuration(architecture))
    return sum(parameter.numel() for parameter in model.parameters())


def _measured(work: Workload, layers: int) -> Memory:
    with fake_step(work, layers) as (likelihood, reference, take), Meter(_vocabulary(work)) as meter:
        weights, frozen = _held(likelihood), [] if reference is None else _held(reference)
        for tensor in (*weights, *frozen):
            meter.watch(tensor)
        trained = [parameter for parameter in likelihood.parameters() if parameter.requires_grad]
        gradients = sum(_local(parameter).nbytes for parameter in trained)
        held = sum(map(_size, (*weights, *frozen)))
        moments = 2 * gradients
        before: list[int] = []  # of the optimiser's step

        def before_optimiser(*_: Any) -> None:
            before.extend((meter.peak, meter.logits))
            meter.restart()

        take(before_optimiser)
        passes, logits = before
        return Memory(
            weights=sum(map(_size, weights)),
            gradients=gradients,
            moments=moments,
            reference=sum(map(_size, frozen)),
            activations=passes - logits - held - gradients,
            logits=logits,
            optimiser=max(0, meter.peak - held - gradients - moments),
            trained=sum(parameter.numel() for parameter in trained),
        )


@contextmanager
def fake_step(work: Workload, layers: int) -> Iterator[tuple[Likelihood, Likelihood | None, Any]]:
    """A model on fake tensors, its reference, and a function that takes a training step.

    The function calls its argument before the optimiser's step. Scalars read as 1.
    """
    with _processes(work.ranks) as ranks, FakeTensorMode(allow_non_fake_inputs=True), Scalars():  # type: ignore[no-untyped-call]
        likelihood = _likelihood(work, layers, ranks, trained=True)
        needs_reference = work.config.surrogate.kl_coefficient and work.config.adapter is None
        reference = _likelihood(work, layers, ranks, trained=False) if needs_reference else None
        optimiser = make_optimiser(likelihood, work.config)
        for group in optimiser.param_groups:
            group["foreach"] = work.cuda
        samples = full_rows(work)

        def take(before_optimiser: Any) -> None:
            hook = optimiser.register_step_pre_hook(before_optimiser)
            grpo_step(likelihood, optimiser, samples, work.config, reference, ranks)
            hook.remove()

        yield likelihood, reference, take


def _likelihood(work: Workload, layers: int, ranks: Ranks, *, trained: bool) -> Likelihood:
    config = configuration(work.architecture, layers)
    adapter = work.config.adapter
    with _disable_current_modes(), torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        if adapter is not None and adapter.quantised:
            hold_in_four_bits(model)
        if adapter is not None:
            add_adapter(model, adapter, seed=0)
    _materialise(model)
    if not trained:
        model.requires_grad_(False)
    elif work.config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
        model.train()
    likelihood = likelihood_of(model)
    model.set_attn_implementation(_ATTENTION)
    if ranks.size > 1:
        with _disable_current_modes():  # the mesh of processes consists of real tensors
            ranks.shard(likelihood, likelihood.layers, work.config.precision)
    return likelihood


def configuration(architecture: Mapping[str, Any], layers: int | None = None) -> Any:
    """The configuration of a model with so many layers; None for all that it has."""
    values = {**architecture, "num_hidden_layers": layers or architecture["num_hidden_layers"]}
    values.pop("layer_types", None)  # lists every layer; it is made again
    values.pop("quantization_config", None)
    return AutoConfig.for_model(**values)


def _materialise(model: nn.Module) -> None:
    """Move a model from the meta device to that of the fake tensors; `to_empty` cannot."""
    made: dict[int, Tensor] = {}  # tied weights stay one
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    made[id(tensor)] = torch.empty(tensor.shape, dtype=tensor.dtype)
                    if isinstance(tensor, nn.Parameter):
                        made[id(tensor)] = nn.Parameter(made[id(tensor)], tensor.requires_grad)
                held[name] = made[id(tensor)]  # type: ignore[assignment]


def full_rows(work: Workload) -> list[TrainingSample]:
    """Episodes without common prefixes, which fill `_ROWS` rows for each process."""
    a_row = -(-work.row // work.episode)
    length = work.row // a_row
    written = min(length, max(1, round(length * work.written)))
    mask = (False,) * (length + 1 - written) + (True,) * written
    numbers = (0.0,) * (length + 1)
    return [
        TrainingSample((index, *(0,) * length), mask, numbers, numbers)
        for index in range(1, 1 + a_row * _ROWS * work.ranks)
    ]


@contextmanager
def _processes(size: int) -> Iterator[Ranks]:
    """This process as the first of several that do not exist."""
    if size == 1:
        yield Ranks()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
        try:
            yield Ranks(0, size)
        finally:
            dist.destroy_process_group()


def _held(module: nn.Module) -> list[Tensor]:
    """The tensors of this process that hold a module's parameters and buffers, each once."""
    tensors = (*module.parameters(), *module.buffers())
    return list({id(local.untyped_storage()): local for local in map(_local, tensors)}.values())


def _local(tensor: Tensor) -> Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _size(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _vocabulary(work: Workload) -> int:
    return int(work.architecture["vocab_size"])


class _Fused(torch.autograd.Function):
    """What a fused attention kernel allocates: nothing that grows with the square of the length."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = torch.empty_like(query)
        sums = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
        ctx.save_for_backward(query, key, value, output, sums)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        query, key, value, *_ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    return _Fused.apply(query.to(value.dtype), key.to(value.dtype), value).transpose(1, 2), None  # type: ignore


AttentionInterface.register(_ATTENTION, _attention)
