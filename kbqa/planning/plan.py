"""The plan of a run: whether a recipe fits a machine, and with rows of what length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kbqa.planning.architectures import architecture_of
from kbqa.planning.estimates import Engine, Pace, Version, engine_of, pace_of, version_of
from kbqa.planning.machines import GIB, Machine, host_for
from kbqa.planning.needs import engine_needs
from kbqa.planning.step import Memory, Workload, memory_of, parameters_of
from kbqa.recipes import Recipe
from kbqa.training.adapters import Adapter
from kbqa.training.grpo import GrpoConfig

_SIZES = (1, 2, 4, 8, 16, 32, 64)  # GPUs that are tried when a recipe does not fit
_USUAL_GPU = 80 * GIB
_TENSORS_SAVED = 3 * 4  # bytes of a trained weight and its two moments, in fp32


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """A phase of a run: the cold start, or reinforcement learning.

    Attributes:
        row: tokens of the longest row: the recipe's, or as many as fit.
        memory: of each process, with rows of this length.
        host: bytes that the first node's processes hold on the host; see `on_host`.
        usable: bytes that each process may use beside that.
    """

    row: int
    memory: Memory
    host: int
    usable: int

    @property
    def fits(self) -> bool:
        return self.memory.peak <= self.usable


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recipe needs, and whether a machine has it.

    Attributes:
        phases: by name, in their order; empty for a policy that chooses, which is not planned.
        stored: activations of reinforcement learning if they are stored instead of recomputed, bytes.
        engine: what vLLM holds on each of its GPUs.
        advice: what to change, if the recipe does not fit; the first that suffices comes first.
    """

    recipe: str
    machine: Machine
    phases: Mapping[str, PhasePlan]
    stored: int | None
    engine: Engine | None
    pace: Pace | None
    version: Version | None
    advice: tuple[str, ...]

    @property
    def host(self) -> int:
        """Bytes that the first node's processes hold on the host."""
        return max((phase.host for phase in self.phases.values()), default=0)

    @property
    def fits_host(self) -> bool:
        """Whether the host has that, as far as its memory is known."""
        usable = self.machine.usable_on_host
        return usable is None or self.host <= usable

    @property
    def fits(self) -> bool:
        return self.fits_host and all(phase.fits for phase in self.phases.values())

    def to_json(self) -> dict[str, Any]:
        phases = {
            name: {
                "row_tokens": phase.row,
                **asdict(phase.memory),
                "total": phase.memory.peak,
                "usable": phase.usable,
                "host": phase.host,
            }
            for name, phase in self.phases.items()
        }
        return {
            "fits": self.fits,
            "recipe": self.recipe,
            "machine": asdict(self.machine),
            "host": self.host,
            "phases": phases,
            "activations_stored": self.stored,
            "engine": self.engine and asdict(self.engine),
            "pace": self.pace and asdict(self.pace),
            "version": self.version and asdict(self.version),
            "advice": list(self.advice),
        }


def plan(recipe: Recipe, machine: Machine, *, details: bool = True) -> Plan:
    """Plan a recipe on a machine.

    Args:
        recipe: as it is trained: see `kbqa.planning.defaults.resolved`.
        details: whether to also compute what the decision does not need, and advice.

    Raises:
        PlanError: the size of the model is not known.
    """
    architecture = architecture_of(recipe)
    if architecture is None:
        return Plan(recipe.name, machine, {}, None, None, None, None, ())
    works = dict(workloads(recipe, machine, architecture))
    phases = {name: _fitted(work, machine) for name, work in works.items()}
    fitting = Plan(recipe.name, machine, phases, None, None, None, None, ())
    fitting = replace(fitting, advice=tuple(_advice(fitting, recipe, works)))
    if not details:
        return fitting
    parameters = parameters_of(architecture)
    work = works["reinforcement"]
    work = replace(work, config=replace(work.config, token_budget=phases["reinforcement"].row))
    stored = memory_of(replace(work, config=replace(work.config, gradient_checkpointing=False)))
    needs, memory = engine_needs(recipe), phases["reinforcement"].memory
    return replace(
        fitting,
        stored=stored.activations,
        engine=engine_of(architecture, parameters, needs),
        pace=pace_of(recipe, machine, parameters, work),
        version=version_of(parameters, memory.trained, work.config),
    )


def workloads(
    recipe: Recipe, machine: Machine, architecture: Mapping[str, Any]
) -> Iterator[tuple[str, Workload]]:
    """What the phases of a recipe compute, by name, in their order."""
    rollout = recipe.rollout
    written = min(1.0, rollout.max_turns * rollout.max_turn_tokens / rollout.max_tokens)
    config = recipe.optimisation.build(rollout)
    work = Workload(architecture, config, rollout.max_tokens, written, machine.ranks, machine.kind == "cuda")
    if (section := recipe.cold_start) is not None:
        imitated = replace(
            config,
            surrogate=replace(config.surrogate, kl_coefficient=0.0),
            token_budget=section.token_budget,
            precision=section.precision,
            adapter=None if section.lora is None else section.lora.build(),
        )
        episode = min(rollout.max_tokens, section.max_length or rollout.max_tokens)
        yield "cold_start", replace(work, config=imitated, episode=episode)
    yield "reinforcement", work


def on_host(work: Workload, memory: Memory, nodes: int) -> int:
    """Bytes that the first node's processes hold on the host, beside what a CPU's training step takes there.

    While a checkpoint is written, that is a copy of the weights and moments which the node trains. The first
    of several processes also keeps the whole weights, which it publishes. A model is loaded to the host.
    """
    copies = _TENSORS_SAVED * memory.trained // nodes
    if work.ranks > 1:
        return work.ranks * memory.weights + max(work.ranks * memory.reference, copies)
    return max(memory.weights + memory.reference, copies) if work.cuda else copies


def _fitted(work: Workload, machine: Machine) -> PhasePlan:
    """A phase with the longest rows that fit; the shortest hold one episode."""
    whole = memory_of(work)
    host = on_host(work, whole, machine.nodes)
    usable = machine.usable(host)
    if whole.peak <= usable or work.row == work.episode or whole.held > usable:
        return PhasePlan(work.row, whole, host, usable)
    shortest = memory_of(_with_rows(work, work.episode))
    room, growth = usable - shortest.peak, whole.peak - shortest.peak
    if room < 0 or growth <= 0:
        return PhasePlan(work.episode, shortest, host, usable)
    # The peak is the greatest of several lines in the length, so it lies below the line between two points.
    row = work.episode + (work.row - work.episode) * room // growth
    memory = shortest.towards(whole, (row - work.episode) / (work.row - work.episode))
    return PhasePlan(row, memory, host, usable)


def _with_rows(work: Workload, tokens: int) -> Workload:
    return replace(work, config=replace(work.config, token_budget=tokens))


def _advice(plan: Plan, recipe: Recipe, works: Mapping[str, Workload]) -> Iterator[str]:
    """Changes, each of which makes the recipe fit by itself, but for the host."""
    machine = plan.machine
    if all(phase.fits for phase in plan.phases.values()):
        if not plan.fits_host:
            gib = -(-host_for(plan.host) // GIB)
            yield f"give each host {gib} GiB of memory (in the chart: trainer.resources.limits.memory)"
        return

    def shortest_rows(machine: Machine, **changes: Any) -> Iterator[tuple[Memory, int]]:
        """The memory of each phase, and what it may use."""
        for work in works.values():
            config = replace(work.config, **changes, token_budget=work.episode)
            changed = replace(work, ranks=machine.ranks, config=config, cuda=machine.kind == "cuda")
            memory = memory_of(changed)
            yield memory, machine.usable(on_host(changed, memory, machine.nodes))

    def fits(machine: Machine, **changes: Any) -> bool:
        return all(memory.peak <= usable for memory, usable in shortest_rows(machine, **changes))

    config: GrpoConfig = works["reinforcement"].config
    if not config.gradient_checkpointing and fits(machine, gradient_checkpointing=True):
        yield "recompute activations: optimisation.gradient_checkpointing: true"
    larger = machine if machine.kind == "cuda" else Machine("cuda", 0, _USUAL_GPU)
    sizes = [gpus for gpus in _SIZES if gpus > larger.ranks]
    # The more GPUs share a model, the less each of them holds.
    fitting = bisect_left(sizes, True, key=lambda gpus: fits(replace(larger, devices=gpus, nodes=1)))
    for gpus in sizes[fitting:][:1]:
        yield f"train on {gpus} GPU{'s' * (gpus > 1)} of {larger.memory / GIB:.0f} GiB"
    if config.adapter is None and recipe.cold_start is None and fits(machine, adapter=Adapter()):
        yield "train an adapter: optimisation.lora: {rank: 32}"
    if all(memory.held < usable for memory, usable in shortest_rows(machine)):
        yield f"shorten the episodes: rollout.max_tokens below {recipe.rollout.max_tokens}"
