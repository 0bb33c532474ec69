"""A simulated fleet of a hundred rollout workers and twenty gateways: what it needs, and what breaks first.

Real are Redis, the queues, the trainer's service, pacing, ledger and inbox, the code of workers and gateways,
access control, quotas, `Idempotency-Key`s and the policy store. Simulated are the engines, which answer after
a random time, the graph, which always finds something, and the optimiser step, which takes no time.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fleet.measurements import Measured, Outcome, Plan, Step
from benchmarks.fleet.shares import Target, costs, shares
from benchmarks.fleet.simulation import GROUP, simulate


def plan(workers: int, gateways: int) -> Plan:
    """A fleet whose load grows with its size, and of which a machine with two cores can bear a hundred."""
    return Plan(
        workers,
        gateways,
        concurrency=2,
        in_flight=16 * workers,
        per_step=max(2, workers // 3),
        steps=(
            Step(15),
            Step(12, questions=workers / 10),
            Step(12, questions=workers / 5),
            Step(30, turn_s=14),
            Step(30, turn_s=7),
            Step(12, booked=10.0 * workers),
        ),
    )


def busy_plan(target: Target) -> Plan:
    """A few members with the rates that the target's trainer and each of its gateways have.

    The workers answer nearly at once, and as fast as a machine with two cores can, which is short of the
    target's rate.
    """
    return Plan(
        workers=4,
        gateways=1,
        concurrency=16,
        in_flight=target.in_flight,
        per_step=33,
        steps=(
            Step(10),
            Step(12, at_a_time=32, answer_s=0.14),  # with its 32 places, a gateway then answers 50/s
            Step(20, turn_s=0.8),
            Step(20, turn_s=0.4),
            Step(12, replies=target.groups),
        ),
    )


def measure() -> list[str]:
    """Lines of a report."""
    target = Target()
    return report(simulate(plan(target.workers, target.gateways)), simulate(busy_plan(target)), target)


def report(whole: Outcome, busy: Outcome, target: Target) -> list[str]:
    """What each step cost, and each component's share of its limit at the target.

    Args:
        busy: the fleet of `busy_plan`.
    """
    header = ("component", "limit", "use", "", "share", "breaks first at")
    return [
        *_lines(whole),
        *_lines(busy),
        f"  at {target.workers} workers with {target.in_flight} groups of {GROUP} in progress "
        f"({target.groups:.0f} groups/s), {target.gateways} gateways, {target.questions:,.0f} questions/s:",
        "  {:<40} {:>7} {:>7} {:<11} {:>6}  {}".format(*header),
        *(f"  {share.line(target)}" for share in shares(whole, busy, target)),
    ]


def _lines(outcome: Outcome) -> Iterator[str]:
    plan = outcome.plan
    yield (
        f"fleet: {plan.workers} workers, {plan.gateways} gateways, {plan.in_flight} requests in flight; "
        f"a reply is {outcome.reply_bytes / 1000:.0f} kB on disk"
    )
    yield from map(_line, outcome.steps)
    yield from (_unit_costs(outcome, kind) for kind in outcome.steps[0].totals.cpu_s)


def _unit_costs(outcome: Outcome, kind: str) -> str:
    plan = outcome.plan
    found = costs(outcome.whole, plan.in_flight, lambda totals: totals.cpu_s[kind])
    return (
        f"  {kind}: {found.base:.3f} cores while they wait, {plan.in_flight * found.request:.3f} while a run "
        f"waits, {1000 * found.group:.1f} ms for a group, {1000 * found.question:.2f} ms for a question"
    )


def _line(step: Measured) -> str:
    totals = step.totals
    load = f"{totals.groups / totals.seconds:.1f} groups/s" if totals.groups else ""
    if step.step.replies:
        load = f"{totals.groups / totals.seconds:.1f} replies/s to the intake alone"
    elif step.step.booked:
        load = f"{step.questions / totals.seconds:.0f} questions/s in the gateways' Redis alone"
    elif step.questions:
        load = f"{step.questions / totals.seconds:.1f} questions/s"
        load += f" at one gateway, {step.step.at_a_time} at a time" if step.step.at_a_time else ""
    spent = ", ".join(f"{name} {seconds / totals.seconds:.3f}" for name, seconds in totals.cpu_s.items())
    peaks, failed = step.peaks, step.questions - step.ends["answered"] - step.ends["booked"]
    commands, network = (sum(of.values()) / totals.seconds for of in (totals.commands, totals.network))
    return (
        f"  {load or 'waiting'}: cores of {spent}; Redis {commands:.0f} commands/s, "
        f"{network / 1e6:.2f} MB/s, {sum(peaks.clients.values())} connections; "
        f"waiting {peaks.queued['rollouts']} requests, {peaks.queued['trajectories']} replies; "
        f"{peaks.files} files of the trainer; {totals.versions} versions, {sum(totals.operations.values())} "
        f"operations of the store" + (f"; {failed} questions not answered" if failed else "")
    )
