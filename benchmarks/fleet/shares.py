"""From what a step costs to what a whole fleet needs: by unit costs, which add up.

    use = base + requests in flight * cost of one + groups a second * cost of a group
        + questions a second * cost of a question

The base is what members cost that only wait; it grows with their number. A run's requests cost something
while they wait, however slowly groups come: what two rates of training have in common.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.fleet.measurements import Measured, Outcome, Totals
from benchmarks.fleet.simulation import GATEWAYS_REDIS, QUEUES_REDIS
from kbqa.wire import ROLLOUTS, TRAJECTORIES

_CORE = 1.0
_REDIS_CLIENTS, _REDIS_MB = 10_000.0, 2048.0  # its default; what docs/operations.md advises
_NETWORK_MB = 1250.0  # a second, of a usual machine
_BUCKET_READS, _BUCKET_WRITES = 5500.0, 3500.0  # a second, of a prefix of S3
_OPEN_FILES = 1024.0  # the usual soft limit of a process
_ANSWERS_MB, _DEAD_LETTERS_MB = 64.0, 2 * 25.0  # KBQA_GATEWAY_ANSWERS_MB; of two queues
_MB = 2.0**20
_DAY_S = 86_400.0
_MANY = 100.0  # fleets


@dataclass(frozen=True, slots=True)
class Target:
    """The fleet whose needs are asked for.

    A worker plays 32 groups at a time (its default), each in 48 seconds: four turns of 256 tokens at 20
    tokens a second for each of its episodes.
    """

    workers: int = 100
    gateways: int = 20
    questions: float = 1000.0
    concurrency: int = 32
    group_s: float = 48.0

    @property
    def in_flight(self) -> int:
        return self.workers * self.concurrency

    @property
    def groups(self) -> float:
        """A second."""
        return self.in_flight / self.group_s


@dataclass(frozen=True, slots=True)
class Costs:
    """What something costs.

    Attributes:
        base: per second of the simulated fleet's waiting.
        request: per second of a request in flight.
        group, question: each.
    """

    base: float
    request: float
    group: float
    question: float

    def of(self, target: Target, scale: float) -> float:
        """What the target needs a second.

        Args:
            scale: members of the target for each simulated one.
        """
        waiting = scale * self.base + target.in_flight * self.request
        return waiting + target.groups * self.group + target.questions * self.question


@dataclass(frozen=True, slots=True)
class Share:
    """What a component needs of its limit, at the target.

    Attributes:
        unit: of `use` and `limit`.
    """

    component: str
    limit: float
    use: float
    unit: str

    @property
    def share(self) -> float:
        return self.use / self.limit

    def line(self, target: Target) -> str:
        """A row of the table: component, limit, use, share, and the fleet at which it breaks."""
        times = 1 / self.share if self.use else math.inf
        breaks = f"{times * target.workers:,.0f} workers, {times * target.questions:,.0f} questions/s"
        if times > _MANY:
            breaks = f"more than {_MANY:.0f} such fleets"
        limit, use = _number(self.limit), _number(self.use)
        return f"{self.component:<40} {limit:>7} {use:>7} {self.unit:<11} {self.share:6.1%}  {breaks}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def costs(steps: Sequence[Measured], in_flight: int, amount: Callable[[Totals], float]) -> Costs:
    """Unit costs of an amount: of waiting from steps without load, then of what steps add to that.

    Args:
        in_flight: requests of a run that trains.
    """
    idle = [step.totals for step in steps if not step.totals.groups and not step.questions]
    base = sum(map(amount, idle)) / sum(totals.seconds for totals in idle)

    def added(totals: Totals) -> float:
        """A second."""
        return amount(totals) / totals.seconds - base

    training = [step.totals for step in steps if step.totals.groups]
    request, group = _constant_and_slope(
        [totals.groups / totals.seconds for totals in training], list(map(added, training))
    )
    asked = [added(step.totals) * step.totals.seconds / step.questions for step in steps if step.questions]
    return Costs(base, request / in_flight, group, max(0.0, statistics.median(asked or [0.0])))


def _constant_and_slope(rates: Sequence[float], added: Sequence[float]) -> tuple[float, float]:
    """A constant and a slope, neither below zero; a single rate has no constant."""
    if not rates:
        return 0.0, 0.0
    if len(set(rates)) > 1:
        slope, constant = statistics.linear_regression(rates, added)
        if slope >= 0.0 and constant >= 0.0:
            return constant, slope
    slope = sum(added) / sum(rates)
    return 0.0, max(0.0, slope)


def shares(whole: Outcome, busy: Outcome, target: Target) -> list[Share]:
    """Each component's share of its limit at the target, the largest first.

    Args:
        busy: a few members with nearly the target's rates for the trainer and a gateway. What these cost says
            more than what they cost in the whole fleet, at a hundredth of that.
    """
    plan, steps = whole.plan, whole.whole
    booked = [step for step in whole.steps if step.step.booked]
    sent = [step for step in busy.steps if step.step.replies]
    scale = target.workers / plan.workers

    def needs(
        component: str,
        limit: float,
        amount: Callable[[Totals], float],
        unit: str,
        steps: Sequence[Measured] = steps,
    ) -> Share:
        return Share(component, limit, costs(steps, plan.in_flight, amount).of(target, scale), unit)

    def needs_of_one(component: str, kind: str, steps: Sequence[Measured]) -> Share:
        """Processor time of a component of which a fleet of any size has one."""
        found = costs(steps, busy.plan.in_flight, lambda totals: totals.cpu_s[kind])
        return Share(component, _CORE, found.of(target, 1.0), "core")

    without_questions = [step for step in steps if not step.questions]
    trained = [step for step in busy.whole if not step.questions]
    idle = [step for step in trained if not step.totals.groups]
    gateway = costs(busy.whole, busy.plan.in_flight, lambda totals: totals.cpu_s["gateways"])
    worker = costs(steps, plan.in_flight, lambda totals: totals.cpu_s["workers"])
    # A few questions create the counts of all callers; many show whether these grow with each.
    kept = [*booked, *without_questions] if booked else steps
    counts = costs(kept, plan.in_flight, lambda totals: totals.count_bytes / _MB)
    counted = counts.question * target.questions * _DAY_S
    request, reply = (
        max(step.peaks.message[queue] for step in steps) / _MB for queue in (ROLLOUTS, TRAJECTORIES)
    )
    waiting = {"requests": request, "all replies": reply}

    def needs_of_redis(name: str, scale: float, loaded: Sequence[Measured] = steps) -> list[Share]:
        """Processor, network and connections; `scale`: its clients in the target for each simulated one."""
        clients = max(step.peaks.clients[name] for step in steps)
        return [
            needs(f"{name}: processor", _CORE, lambda totals: totals.cpu_s[name], "core", loaded),
            needs(f"{name}: network", _NETWORK_MB, lambda totals: totals.network[name] / _MB, "MB/s"),
            Share(f"{name}: connections", _REDIS_CLIENTS, clients * scale, "connections"),
        ]

    found = [
        *needs_of_redis(QUEUES_REDIS, target.workers / plan.workers),
        *needs_of_redis(GATEWAYS_REDIS, target.gateways / plan.gateways, kept),
        *(
            Share(
                f"{QUEUES_REDIS}: memory, {what} waiting",
                _REDIS_MB,
                _DEAD_LETTERS_MB + target.in_flight * size,
                "MB",
            )
            for what, size in waiting.items()
        ),
        Share(f"{GATEWAYS_REDIS}: memory", _REDIS_MB, _ANSWERS_MB + counted, "MB"),
        needs_of_one("trainer's intake: processor", "trainer", [*sent, *idle]),
        needs_of_one("training process: processor", "training", trained),
        Share("trainer: open files", _OPEN_FILES, max(step.peaks.files for step in steps), "files"),
        Share(
            "gateway: processor",
            _CORE,
            gateway.base / busy.plan.gateways + target.questions / target.gateways * gateway.question,
            "core",
        ),
        Share(
            "worker: processor, without the engine",
            _CORE,
            worker.base / plan.workers
            + target.concurrency * worker.request
            + target.groups / target.workers * worker.group,
            "core",
        ),
        needs("policy store: reads", _BUCKET_READS, _reads, "a second"),
        needs("policy store: writes", _BUCKET_WRITES, _writes, "a second"),
    ]
    return sorted(found, key=lambda share: -share.share)


def _reads(totals: Totals) -> float:
    return sum(totals.operations[name] for name in ("names", "exists", "read"))


def _writes(totals: Totals) -> float:
    return sum(totals.operations[name] for name in ("write", "remove", "publish"))
