"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from kbqa.planning.machines import GIB
from kbqa.planning.plan import Plan

_PARTS = ("weights", "gradients", "moments", "reference", "activations", "logits")


def refusal(plan: Plan) -> str:
    """Why a recipe does not fit, and what would."""
    advice = "; or ".join(plan.advice)
    reasons = []
    if not plan.fits_host and (usable := plan.machine.usable_on_host) is not None:
        reasons.append(
            f"its processes hold {_gib(plan.host)} on the host while a checkpoint is written, but may use "
            f"only {_gib(usable)} there"
        )
    name, phase = max(plan.phases.items(), key=lambda item: item[1].memory.peak - item[1].usable)
    if not phase.fits:
        on_cpu = plan.machine.kind == "cpu"
        more = f", and {_gib(phase.host)} more while a checkpoint is written" if on_cpu else ""
        reasons.append(
            f"{name.replace('_', ' ')} with rows of {phase.row} tokens takes {_gib(phase.memory.peak)}"
            f"{more}, but each process may use only {_gib(plan.machine.usable(0))}"
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
        used = f"{_gib(memory.peak)} of {_gib(max(0, phase.usable))} usable"
        yield f"{name.replace('_', ' ')}, rows of {phase.row} tokens: {used}"
        for part in _PARTS:
            if size := getattr(memory, part):
                yield f"  {part:<12} {_gib(size):>10}"
        if memory.optimiser > memory.activations + memory.logits:
            yield f"  {'optimiser':<12} {_gib(memory.optimiser):>10}  instead of activations and logits"
    yield f"on the host: {_gib(plan.host)} while weights are loaded and checkpoints are written"
    if plan.stored is not None:
        yield f"activations, if stored instead of recomputed: {_gib(plan.stored)}"
    if (engine := plan.engine) is not None:
        rank = f", --max-lora-rank {engine.lora_rank}" if engine.lora_rank else ""
        yield (
            f"vLLM: {_gib(engine.least)} at least, weights {_gib(engine.weights)} and an episode "
            f"{_gib(engine.kv_an_episode)}; --max-model-len {engine.max_model_len}{rank}"
        )
    if (pace := plan.pace) is not None:
        yield (
            f"estimates: {pace.tokens_a_second:,.1f} trained tokens a second; at most "
            f"{pace.seconds_a_step / 60:.0f} minutes for an update"
        )
    if (version := plan.version) is not None:
        yield (
            f"a version: {version.bytes / 1e9:.1f} GB, {version.seconds:.0f} s until it is served (estimate)"
            f"; a checkpoint: {version.checkpoint_bytes / 1e9:.1f} GB"
        )
    yield from (f"to make it fit: {advice}" for advice in plan.advice)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
