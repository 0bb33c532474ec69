"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from kbqa.planning.machines import GIB, MIB
from kbqa.planning.plan import Plan

_PARTS = ("weights", "gradients", "moments", "reference", "activations", "logits")


def refusal(plan: Plan) -> str:
    """Why a recipe does not fit, and what would."""
    advice = "; or ".join(plan.advice)
    reasons = []
    if not plan.fits_host and (usable := plan.machine.usable_on_host) is not None:
        reasons.append(
            f"its processes hold {_size(plan.host)} on the host while a checkpoint is written, but may use "
            f"only {_size(usable)} there"
        )
    name, phase = max(plan.phases.items(), key=lambda item: item[1].memory.peak - item[1].usable)
    if not phase.fits:
        on_cpu = plan.machine.kind == "cpu"
        more = f", and {_size(phase.host)} more while a checkpoint is written" if on_cpu else ""
        reasons.append(
            f"{name.replace('_', ' ')} with rows of {phase.row} tokens takes {_size(phase.memory.peak)}"
            f"{more}, but each process may use only {_size(plan.machine.usable(0))}"
        )
    return (
        f"recipe {plan.recipe} does not fit {plan.machine}: {'; '.join(reasons)}. "
        f"{advice[:1].upper()}{advice[1:]}. kbqa plan {plan.recipe} has the details"
    )


def lines(plan: Plan) -> Iterator[str]:
    """A plan, line by line."""
    if not plan.phases:
        yield f"{plan.recipe} trains a policy that chooses, whose encoder is small: it is not planned"
        return
    yield f"{plan.recipe} {'fits' if plan.fits else 'does not fit'} {plan.machine}"
    for name, phase in plan.phases.items():
        memory = phase.memory
        used = f"{_size(memory.peak)} of {_size(max(0, phase.usable))} usable"
        yield f"{name.replace('_', ' ')}, rows of {phase.row} tokens: {used}"
        for part in _PARTS:
            if size := getattr(memory, part):
                yield f"  {part:<12} {_size(size):>10}"
        if memory.optimiser > memory.activations + memory.logits:
            yield f"  {'optimiser':<12} {_size(memory.optimiser):>10}  instead of activations and logits"
    yield f"on the host: {_size(plan.host)} while weights are loaded and checkpoints are written"
    if plan.stored is not None:
        yield f"activations, if stored instead of recomputed: {_size(plan.stored)}"
    if (engine := plan.engine) is not None:
        rank = f", --max-lora-rank {engine.lora_rank}" if engine.lora_rank else ""
        yield (
            f"vLLM: {_size(engine.least)} at least, weights {_size(engine.weights)} and an episode "
            f"{_size(engine.kv_an_episode)}; --max-model-len {engine.max_model_len}{rank}"
        )
    if (pace := plan.pace) is not None:
        yield (
            f"estimates: {pace.tokens_a_second:,.1f} trained tokens a second; at most "
            f"{_time(pace.seconds_a_step)} for an update"
        )
    if (version := plan.version) is not None:
        yield (
            f"a version: {_size(version.bytes)}, {_time(version.seconds)} until it is served (estimate); "
            f"a checkpoint: {_size(version.checkpoint_bytes)}"
        )
    yield from (f"to make it fit: {advice}" for advice in plan.advice)


def _size(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / MIB:.1f} MiB"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.1f} s"
