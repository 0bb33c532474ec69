"""The plan of a campaign comes from its seed, and leaves no fault out."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.faults import FAULTS, Fault, adjustable_clock, plan


def order(seed: int, rounds: int) -> list[Fault]:
    return list(itertools.islice(plan(seed, 60.0, FAULTS, (0.0, 0.0)), rounds * len(FAULTS)))


def test_every_round_has_each_fault_once_in_an_order_of_its_own() -> None:
    planned = order(1, rounds=2)
    first, second = planned[: len(FAULTS)], planned[len(FAULTS) :]
    names = sorted(fault.name for fault in FAULTS)
    assert sorted(fault.name for fault in first) == sorted(fault.name for fault in second) == names
    assert len(set(names)) == len(names)
    assert first != second


def test_a_seed_repeats_its_plan_and_another_one_does_not() -> None:
    assert order(1, rounds=2) == order(1, rounds=2) != order(2, rounds=2)


def test_a_plan_ends_in_time() -> None:
    assert list(plan(1, 0.0, FAULTS, (0.01, 0.01))) == []


def test_a_clock_is_off_by_what_its_file_says_and_goes_on_otherwise(tmp_path: Path) -> None:
    offset, environment = adjustable_clock(tmp_path / "clock")

    def ahead_s() -> float:
        program = "import time; time.sleep(0.01); print(time.time())"
        told = subprocess.check_output([sys.executable, "-P", "-c", program], env=os.environ | environment)
        return float(told) - time.time()

    assert abs(ahead_s()) < 30
    offset.write_text("60")
    assert 30 < ahead_s() < 61
