"""python -m benchmarks.fleet WORKERS GATEWAYS: a smaller fleet, whose costs are scaled up."""

from __future__ import annotations

import sys

from benchmarks.fleet import busy_plan, plan, report
from benchmarks.fleet.shares import Target
from benchmarks.fleet.simulation import simulate


def main(workers: int, gateways: int) -> int:
    target = Target()
    for line in report(simulate(plan(workers, gateways)), simulate(busy_plan(target)), target):
        sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
