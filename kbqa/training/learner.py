"""The model in training, in one process or sharded over several, behind the same calls.

When the model is sharded, rank 0 makes the calls and the other ranks follow: rank 0 sends them the
name of each call and, for an update, the samples; then all ranks do the same.

    rank 0     ShardedLearner: model and optimiser, whole, on the host    ┐ a shard each: parameters,
    rank k     follow()                                                   ┘ gradients and moments

The whole model on rank 0 is the one that is published and saved. `gather` updates it from the shards;
`scatter` updates the shards from it, after a checkpoint was loaded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from kbqa.errors import ConfigurationError
from kbqa.training.adapters import add_adapter
from kbqa.training.grpo import GrpoConfig, make_optimiser
from kbqa.training.likelihood import likelihood_of
from kbqa.training.ranks import ALONE, Ranks, whole
from kbqa.training.update import UpdateResult, grpo_update
from kbqa.trajectory import TrainingSample

Questions = Sequence[Sequence[TrainingSample]]
Origin = tuple[str, str]
"""The directories of the initial model and of the reference model."""


class Learner:
    """A model that one process trains.

    Args:
        model: the initial causal language model; it gets an adapter if `config` has one.
        reference: loads the frozen model of the KL penalty; called only if it is needed.
        seed: random seed of a fresh adapter.

    Attributes:
        model, optimiser: what is published and saved.
    """

    def __init__(
        self,
        model: Any,
        config: GrpoConfig,
        reference: Callable[[], Any],
        seed: int,
        ranks: Ranks = ALONE,
    ) -> None:
        self._config, self._ranks = config, ranks
        self.model = _prepared(model, config, seed)
        self._reference = None
        if config.surrogate.kl_coefficient and config.adapter is None:
            self._reference = reference().requires_grad_(False)
        self._place()
        self.optimiser = make_optimiser(self.model, config)

    def update(self, questions: Questions, check: Callable[[], None] = lambda: None) -> UpdateResult:
        """Learn from the samples of each question; see `grpo_update`.

        Args:
            check: called after each backward pass while no weight has changed; whatever it raises ends the
                update, and leaves model and optimiser as they were. Not called with several processes.
        """
        with self._interruptible(check):
            return grpo_update(
                self.model, self.optimiser, questions, self._config, self._reference, ranks=self._ranks
            )

    @contextmanager
    def _interruptible(self, check: Callable[[], None]) -> Iterator[None]:
        changed = False

        def change(*_: object) -> None:
            nonlocal changed
            changed = True

        first = next(parameter for parameter in self.model.parameters() if parameter.requires_grad)
        handles = (
            first.register_post_accumulate_grad_hook(lambda _: None if changed else check()),
            self.optimiser.register_step_pre_hook(change),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def gather(self, *, moments: bool) -> None:
        """Bring `model` up to date and, with `moments`, `optimiser` too."""

    def scatter(self) -> None:
        """Continue from the current contents of `model` and `optimiser`."""

    def _place(self) -> None:
        if not getattr(self.model, "is_quantized", False):
            self.model.to(self._ranks.device)
        if self._reference is not None:
            self._reference.to(self._ranks.device)


class ShardedLearner(Learner):
    """A model that several processes train; this is rank 0.

    Args:
        origin: what `follow` loads the same models from.
    """

    def __init__(
        self,
        model: Any,
        config: GrpoConfig,
        reference: Callable[[], Any],
        seed: int,
        ranks: Ranks,
        origin: Origin,
    ) -> None:
        if config.adapter is not None and config.adapter.quantised:
            raise ConfigurationError(
                "optimisation.lora.quantised needs a single process: set KBQA_TRAINING_PROCESSES=1"
            )
        super().__init__(model, config, reference, seed, ranks)
        ranks.tell({"call": "begin", "origin": origin, "seed": seed})
        self._shard = _Shard(copy.deepcopy(self.model), self._reference, config, ranks)
        self._reference = None  # it is sharded now

    def update(self, questions: Questions, check: Callable[[], None] = lambda: None) -> UpdateResult:
        rates = [group["lr"] for group in self.optimiser.param_groups]
        samples = [[_to_json(sample) for sample in question] for question in questions]
        self._ranks.tell({"call": "update", "questions": samples, "rates": rates})
        return self._shard.update(questions, rates)

    def gather(self, *, moments: bool) -> None:
        self._ranks.tell({"call": "gather", "moments": moments})
        weights, states = self._shard.gather(moments=moments)
        with torch.no_grad():
            for parameter, weight, state in zip(_trained(self.model), weights, states, strict=True):
                parameter.copy_(weight)
                if state:
                    self.optimiser.state[parameter] = state

    def scatter(self) -> None:
        states = [dict(self.optimiser.state.get(p, {})) for p in _trained(self.model)]
        names = [sorted(state) for state in states]
        self._ranks.tell({"call": "scatter", "names": names})
        self._shard.scatter([p.detach() for p in _trained(self.model)], states, names)

    def _place(self) -> None:
        """Leave the whole model on the host."""


def begin(
    model: Any,
    config: GrpoConfig,
    reference: Callable[[], Any],
    seed: int,
    ranks: Ranks,
    origin: Origin,
) -> Learner:
    """A learner for one process, or for several."""
    if ranks.size == 1:
        return Learner(model, config, reference, seed, ranks)
    return ShardedLearner(model, config, reference, seed, ranks, origin)


def follow(load: Callable[[str], Any], config: GrpoConfig, ranks: Ranks) -> None:
    """Follow the calls of rank 0 until it leaves.

    Args:
        load: loads a model from a directory that rank 0 names.
        config: the configuration of rank 0.
    """
    shard: _Shard | None = None
    while (message := ranks.hear()) is not None:
        if message["call"] == "begin":
            start, reference = message["origin"]
            model = _prepared(load(start), config, message["seed"])
            needs = config.surrogate.kl_coefficient and config.adapter is None
            shard = _Shard(model, load(reference) if needs else None, config, ranks)
            continue
        assert shard is not None
        if message["call"] == "update":
            questions = [[_from_json(sample) for sample in question] for question in message["questions"]]
            shard.update(questions, message["rates"])
        elif message["call"] == "gather":
            shard.gather(moments=message["moments"])
        elif message["call"] == "scatter":
            shard.scatter(None, None, message["names"])


class _Shard:
    """This process's part of a sharded model; every process makes the same calls."""

    def __init__(self, model: Any, reference: Any | None, config: GrpoConfig, ranks: Ranks) -> None:
        self._config, self._ranks = config, ranks
        likelihood = likelihood_of(model.to(ranks.device))
        self._likelihood = ranks.shard(likelihood, likelihood.layers)
        self._reference = None
        if reference is not None:
            reference = reference.requires_grad_(False).to(ranks.device)
            frozen = likelihood_of(reference)
            self._reference = ranks.shard(frozen, frozen.layers)
        self._optimiser = make_optimiser(self._likelihood, config)

    def update(self, questions: Questions, rates: Sequence[float]) -> UpdateResult:
        for group, rate in zip(self._optimiser.param_groups, rates, strict=True):
            group["lr"] = rate
        return grpo_update(
            self._likelihood, self._optimiser, questions, self._config, self._reference, ranks=self._ranks
        )

    def gather(self, *, moments: bool) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """The trained weights, whole, and with `moments` the optimiser's state of each."""
        trained = _trained(self._likelihood)
        states = [sorted(self._optimiser.state.get(p, {}).items()) if moments else [] for p in trained]
        return (
            [whole(p) for p in trained],
            [{name: whole(value).clone() for name, value in state} for state in states],
        )

    def scatter(
        self,
        weights: Sequence[Tensor] | None,
        moments: Sequence[dict[str, Tensor]] | None,
        names: Sequence[Sequence[str]],
    ) -> None:
        """The inverse of `gather`. Only rank 0 has weights and moments; all ranks know the moments' names."""
        self._optimiser.state.clear()
        for index, parameter in enumerate(_trained(self._likelihood)):
            source = torch.empty(parameter.shape) if weights is None else weights[index]
            with torch.no_grad():
                parameter.copy_(self._ranks.shared(source, parameter))
            for name in names[index]:
                size = parameter.shape if name.startswith("exp_avg") else ()
                value = torch.empty(size) if moments is None else moments[index][name]
                self._optimiser.state[parameter][name] = self._ranks.shared(
                    value, parameter if size else None
                )


def _prepared(model: Any, config: GrpoConfig, seed: int) -> Any:
    if config.adapter is not None:
        add_adapter(model, config.adapter, seed)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
        model.train()  # gradient checkpointing needs it; `kbqa.training.attention` has no dropout
    return model


def _trained(module: Any) -> list[torch.nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _to_json(sample: TrainingSample) -> dict[str, Any]:
    """A sample as JSON values, without the zeros where its mask is not set."""
    policy = [position for position, masked in enumerate(sample.mask) if masked]
    return {
        "token_ids": sample.token_ids,
        "policy": policy,
        "logprobs": [sample.logprobs[position] for position in policy],
        "advantages": [sample.advantages[position] for position in policy],
    }


def _from_json(values: dict[str, Any]) -> TrainingSample:
    length = len(values["token_ids"])
    mask, logprobs, advantages = [False] * length, [0.0] * length, [0.0] * length
    columns = zip(values["policy"], values["logprobs"], values["advantages"], strict=True)
    for position, logprob, advantage in columns:
        mask[position], logprobs[position], advantages[position] = True, logprob, advantage
    return TrainingSample(tuple(values["token_ids"]), tuple(mask), tuple(logprobs), tuple(advantages))
