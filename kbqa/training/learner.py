"""The model in training, in one process or sharded over several, behind the same calls.

When the model is sharded, rank 0 makes the calls and the other ranks follow: rank 0 sends them the
name of each call and its arguments; then all ranks do the same.

    rank 0     ShardedLearner: the whole model, on the host     ┐ a part each: parameters,
    rank k     follow()                                         ┘ gradients and moments

The other ranks need no files: rank 0 sends them the model's configuration, of which all ranks make a model
without storage, and then to each its part of the weights. The whole model on rank 0 is the one that is
published; `gather` updates it. The optimiser is never whole anywhere.
"""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kbqa.errors import CheckpointError, ConfigurationError
from kbqa.policies.chooser.model import Chooser
from kbqa.training.adapters import add_adapter
from kbqa.training.generators import make_deterministic
from kbqa.training.grpo import GrpoConfig, make_optimiser
from kbqa.training.likelihood import likelihood_of
from kbqa.training.ranks import ALONE, Ranks, whole
from kbqa.training.sft import Example, SftConfig, imitating, sft_optimiser, sft_step
from kbqa.training.tensor_files import TrainedTensors, trained_parameters
from kbqa.training.update import UpdateResult, grpo_update
from kbqa.trajectory import TrainingSample

logger = logging.getLogger(__name__)

Config = GrpoConfig | SftConfig
Questions = Sequence[Sequence[TrainingSample]]


class Learner:
    """A model that one process trains.

    Args:
        model: the initial model, on the host; it gets an adapter if `config` has one.
        config: how it learns: from rollouts or by imitation.
        reference: loads the frozen model of the KL penalty; called only if it is needed.
        seed: random seed of a fresh adapter.
        base_model: name of the model, which a fresh adapter's configuration keeps.

    Attributes:
        model: what is published.
    """

    def __init__(
        self,
        model: Any,
        config: Config,
        reference: Callable[[], Any] | None = None,
        seed: int = 0,
        ranks: Ranks = ALONE,
        base_model: str | None = None,
    ) -> None:
        self.model = _prepared(model, config, seed, base_model)
        frozen = None
        if _needs_reference(config):
            assert reference is not None, "a KL penalty needs a reference"
            frozen = reference().requires_grad_(False)
        self._part = self._begin(config, frozen, ranks)

    def update(
        self, questions: Questions, rate: float, check: Callable[[], None] = lambda: None
    ) -> UpdateResult:
        """Learn from the samples of each question at a learning rate; see `grpo_update`.

        Args:
            check: called after each backward pass while no weight has changed; whatever it raises ends the
                update, and leaves model and optimiser as they were. Not called with several processes.
        """
        with self._part.interruptible(check):
            return self._part.update(questions, rate)

    def imitate(self, examples: Sequence[Example], rate: float) -> float:
        """Learn to write what the examples say, at a learning rate; returns the loss. See `sft_step`."""
        return self._part.imitate(examples, rate)

    def gather(self) -> None:
        """Bring `model` up to date."""

    def write(self, directory: Path) -> Future[dict[str, str]]:
        """Copy weights and moments to the host, and write them in the background; see `TrainedTensors`."""
        return self._part.tensors.write(directory)

    def read(self, directory: Path, checksums: Mapping[str, str]) -> None:
        """Continue with weights and moments from files; see `TrainedTensors`.

        Raises:
            CheckpointError: they are damaged, or do not fit the model.
        """
        self._part.tensors.read(directory, checksums)

    def _begin(self, config: Config, reference: Any | None, ranks: Ranks) -> _Part:
        if not getattr(self.model, "is_quantized", False):
            self.model.to(ranks.device)
        if reference is not None:
            reference.to(ranks.device)
        # Not sharded, a model may be called by its parts, so GRPO needs no module around it.
        module = self.model if isinstance(config, GrpoConfig) else imitating(self.model)
        return _Part(self.model, module, reference, config, ranks)


class ShardedLearner(Learner):
    """A model that several processes train; this is rank 0."""

    def update(
        self, questions: Questions, rate: float, check: Callable[[], None] = lambda: None
    ) -> UpdateResult:
        self._part.ranks.tell({"call": "update", "questions": questions, "rate": rate})
        return super().update(questions, rate)

    def imitate(self, examples: Sequence[Example], rate: float) -> float:
        self._part.ranks.tell({"call": "imitate", "examples": examples, "rate": rate})
        return super().imitate(examples, rate)

    def gather(self) -> None:
        self._part.ranks.tell({"call": "gather"})
        self._part.gather(trained_parameters(self.model))

    def write(self, directory: Path) -> Future[dict[str, str]]:
        self._part.ranks.tell({"call": "write", "directory": str(directory.absolute())})
        return super().write(directory)

    def read(self, directory: Path, checksums: Mapping[str, str]) -> None:
        message = {"call": "read", "directory": str(directory.absolute()), "checksums": dict(checksums)}
        self._part.ranks.tell(message)
        super().read(directory, checksums)
        self.gather()

    def _begin(self, config: Config, reference: Any | None, ranks: Ranks) -> _Part:
        if config.adapter is not None and config.adapter.quantised:
            raise ConfigurationError(
                "optimisation.lora.quantised: weights in 4 bits cannot be sharded, so they need a single "
                "process: set KBQA_TRAINING_PROCESSES=1 (and KBQA_TRAINING_NODES=1)"
            )
        gc.collect()  # what an earlier phase has left on the device
        message = {
            "config": config,
            "model": _architecture(self.model),
            "reference": reference and _architecture(reference),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        ranks.tell({"call": "begin", **message})
        return _Part.of(message, ranks, self.model, reference)


def begin(
    model: Any,
    config: Config,
    reference: Callable[[], Any] | None = None,
    seed: int = 0,
    ranks: Ranks = ALONE,
    base_model: str | None = None,
) -> Learner:
    """A learner for one process, or for several.

    A chooser is trained by rank 0 alone: it is small, and FSDP does not shard its scalar parameters.
    """
    if ranks.size > 1 and isinstance(model, Chooser):
        logger.warning("a policy that chooses is trained by one process; the others are idle")
        ranks = Ranks(device=ranks.device)
    kind = Learner if ranks.size == 1 else ShardedLearner
    return kind(model, config, reference, seed, ranks, base_model)


def follow(ranks: Ranks) -> None:
    """Follow the calls of rank 0 until it leaves."""
    part: _Part | None = None
    while (message := ranks.hear()) is not None:
        if message["call"] == "begin":
            part = None
            gc.collect()  # before its successor takes the memory of the device
            part = _Part.of(message, ranks)
            continue
        assert part is not None, "rank 0 begins first"
        if message["call"] == "update":
            part.update(message["questions"], message["rate"])
        elif message["call"] == "imitate":
            part.imitate(message["examples"], message["rate"])
        elif message["call"] == "gather":
            part.gather(None)
        elif message["call"] == "write":
            part.tensors.write(Path(message["directory"]))
        elif message["call"] == "read":
            with suppress(CheckpointError):  # rank 0 has the same, and decides
                part.tensors.read(Path(message["directory"]), message["checksums"])


class _Part:
    """This process's part of the model: all of it, or a shard; then every process makes the same calls.

    Args:
        model: the model.
        module: the model or its likelihood, which is sharded.
        reference: the frozen model of the KL penalty, in the same form as `module`.
    """

    def __init__(self, model: Any, module: Any, reference: Any | None, config: Config, ranks: Ranks) -> None:
        self._model, self._module, self._reference, self._config = model, module, reference, config
        self.ranks = ranks
        optimiser_of: Any = make_optimiser if isinstance(config, GrpoConfig) else sft_optimiser
        self._optimiser = optimiser_of(module, config)
        self.tensors = TrainedTensors(model, self._optimiser, ranks)

    @classmethod
    def of(
        cls, message: Mapping[str, Any], ranks: Ranks, model: Any | None = None, reference: Any | None = None
    ) -> _Part:
        """The shard of rank 0's models.

        Args:
            message: rank 0's, which begins.
            model, reference: whole, on rank 0 only.
        """
        if message["deterministic"]:
            make_deterministic()
        config: Config = message["config"]
        likelihood = likelihood_of if isinstance(config, GrpoConfig) else imitating

        def shard(architecture: Mapping[str, Any], config: Config | None, source: Any | None) -> Any:
            with torch.device("meta"):
                own = AutoModelForCausalLM.from_config(
                    AutoConfig.for_model(**architecture), dtype=torch.float32
                )
                own = own.requires_grad_(False) if config is None else _prepared(own, config)
            module = likelihood(own)
            ranks.shard(module, module.layers, message["config"].precision)
            module.to_empty(device=ranks.device)
            ranks.fill(own, source)
            return module

        module = shard(message["model"], config, model)
        frozen = None if message["reference"] is None else shard(message["reference"], None, reference)
        return cls(module.model, module, frozen, config, ranks)

    def update(self, questions: Questions, rate: float) -> UpdateResult:
        assert isinstance(self._config, GrpoConfig), "it began to learn by imitation"
        self._set(rate)
        return grpo_update(
            self._module, self._optimiser, questions, self._config, self._reference, ranks=self.ranks
        )

    @contextmanager
    def interruptible(self, check: Callable[[], None]) -> Iterator[None]:
        """While the context lasts, `check` is called after each backward pass before a weight changes."""
        changed = False

        def change(*_: object) -> None:
            nonlocal changed
            changed = True

        first = next(parameter for parameter in self._model.parameters() if parameter.requires_grad)
        handles = (
            first.register_post_accumulate_grad_hook(lambda _: None if changed else check()),
            self._optimiser.register_step_pre_hook(change),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def imitate(self, examples: Sequence[Example], rate: float) -> float:
        assert isinstance(self._config, SftConfig), "it began to learn from rollouts"
        self._set(rate)
        return sft_step(self._module, self._optimiser, examples, self._config, self.ranks)

    @torch.no_grad()
    def gather(self, into: Mapping[str, torch.Tensor] | None) -> None:
        """Copy the trained weights into whole tensors by name, one after the other; None on other ranks."""
        for name, parameter in trained_parameters(self._model).items():
            if into is not None:
                into[name].copy_(whole(parameter))
            else:
                whole(parameter)  # takes part, and keeps nothing

    def _set(self, rate: float) -> None:
        for group in self._optimiser.param_groups:
            group["lr"] = rate


def _needs_reference(config: Config) -> bool:
    return isinstance(config, GrpoConfig) and config.surrogate.kl_coefficient != 0 and config.adapter is None


def _prepared(model: Any, config: Config, seed: int = 0, base_model: str | None = None) -> Any:
    if config.adapter is not None:
        add_adapter(model, config.adapter, seed, base_model)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
        model.train()  # gradient checkpointing needs it; `kbqa.training.attention` has no dropout
    return model


def _architecture(model: Any) -> dict[str, Any]:
    """A model's configuration as JSON values."""
    architecture: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
    return architecture
