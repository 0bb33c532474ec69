"""What to look at first on a GPU: a training step of each large recipe at its real size.

Weights are random and have the shapes of the published base. Episodes are as long as the recipe allows, share
nothing, and fill two rows of the planned length. The report is a table for
docs/measurements/training-step.md.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks import mfu
from kbqa.planning.architectures import architecture_of
from kbqa.planning.defaults import resolved, with_rows_of
from kbqa.planning.machines import GIB, Machine, machine_here
from kbqa.planning.needs import needs_by_recipe
from kbqa.planning.plan import plan, workloads
from kbqa.planning.step import Workload, configuration, full_rows
from kbqa.recipes import load_recipe
from kbqa.training.learner import Learner
from kbqa.training.ranks import Ranks
from kbqa.training.saving import save_weights
from kbqa.training.throughput import peak

_ROUNDS = 3
_COLUMNS = (
    "recipe",
    "tokens a row",
    "GiB planned",
    "GiB taken",
    "seconds a step",
    "tokens/s",
    "MFU",
    "seconds to save a version",
)


@dataclass(frozen=True, slots=True)
class Step:
    """A measured training step.

    Attributes:
        tokens: of its rows.
        seconds: median of several steps, the first left out.
        flops: of the products that it takes; see `benchmarks.mfu.flops`.
        memory: bytes that were allocated at most; None on a CPU.
        saved_s: seconds to write and hash the weights in bf16.
    """

    tokens: int
    seconds: float
    flops: float
    memory: int | None
    saved_s: float


def measure() -> list[str]:
    """Lines of a report; one that says why where there is no GPU."""
    if not torch.cuda.is_available():
        return ["training steps at real size: not measured, there is no GPU"]
    Ranks.join()
    machine, name = machine_here(1), torch.cuda.get_device_name()
    head = [f"Training steps on one {name}:", "", _row(*_COLUMNS), _row(*["---"] * len(_COLUMNS))]
    return [*head, *(line(recipe, machine) for recipe, needs in needs_by_recipe().items() if needs.base)]


def line(name: str, machine: Machine) -> str:
    """A recipe's row of the table; says why if it is not measured."""
    recipe = resolved(load_recipe(name), machine.kind)
    planned = plan(recipe, machine, details=False)
    if not planned.fits:
        return _row(f"`{name}`", f"does not fit: {planned.advice[0]}", *[""] * (len(_COLUMNS) - 2))
    recipe = with_rows_of(recipe, planned)
    architecture = architecture_of(recipe)
    assert architecture is not None, "its base is a language model"
    work = dict(workloads(recipe, machine, architecture))["reinforcement"]
    if work.config.adapter is not None and work.config.adapter.quantised:
        return _row(f"`{name}`", "weights in 4 bits are made of files", *[""] * (len(_COLUMNS) - 2))
    measured, most = step(work, torch.device("cuda")), peak(torch.device("cuda"))
    return _row(
        f"`{name}`",
        str(work.row),
        f"{planned.phases['reinforcement'].memory.peak / GIB:.1f}",
        f"{(measured.memory or 0) / GIB:.1f}",
        f"{measured.seconds:.2f}",
        f"{measured.tokens / measured.seconds:,.0f}",
        "" if most is None else f"{measured.flops / measured.seconds / most:.2f}",
        f"{measured.saved_s:.1f}",
    )


def step(work: Workload, device: torch.device) -> Step:
    """Measure a workload's step with all layers, in this process."""
    torch.manual_seed(0)
    config = replace(work.config, epochs=1, mini_batch_questions=None, mini_batch_samples=None)

    def model() -> Any:
        with device:
            return AutoModelForCausalLM.from_config(configuration(work.architecture), dtype=torch.float32)

    learner, samples = Learner(model(), config, model, ranks=Ranks(device=device)), full_rows(work)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(1 + _ROUNDS):
        began = time.perf_counter()
        learner.update([samples], config.learning_rate)
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    memory = torch.cuda.max_memory_allocated() if on_gpu else None
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        save_weights(learner.model, Path(directory), "bfloat16")
        saved_s = time.perf_counter() - began
    tokens = sum(len(sample.token_ids) for sample in samples)
    return Step(tokens, median(seconds[1:]), _flops(learner.model, samples), memory, saved_s)


def _flops(model: Any, samples: list[Any]) -> float:
    """Of the samples, forwards and backwards; the vocabulary is projected to from policy tokens alone."""
    config, layers = model.config, sum(p.numel() for p in model.model.layers.parameters())
    head: float = 6.0 * config.vocab_size * config.hidden_size * sum(sum(sample.mask) for sample in samples)
    return head + sum(
        mfu.flops(layers, config.num_hidden_layers, config.hidden_size, len(sample.token_ids))
        for sample in samples
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
