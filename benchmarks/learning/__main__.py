"""python -m benchmarks.learning [--jobs N] [--table]: run what the record lacks, then print the table.

With --power, print what the design can decide, and how much the findings of the record vary.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.learning.design import Design, load_design
from benchmarks.learning.power import power_table, spreads_table
from benchmarks.learning.record import Entry, append, read
from benchmarks.learning.report import findings
from benchmarks.learning.table import findings_table, variants_table
from benchmarks.learning.trial import run
from benchmarks.learning.verdicts import current, missing

_SHELF = Path("var/learning")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.learning", description="The papers' ablations.")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--table", action="store_true", help="run nothing, only print")
    parser.add_argument("--power", action="store_true", help="run nothing, print what the design can decide")
    parser.add_argument("--shelf", type=Path, default=_SHELF, help="where bases and cold starts are kept")
    parser.add_argument("--run", nargs=2, metavar=("VARIANT", "SEED"), help="one run, here")
    parser.add_argument(
        "--finding",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="run what these need (default: all of the design)",
    )
    parser.add_argument(
        "--loop", choices=("production", "own"), default="production", help="show the runs of this loop"
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="also write the findings there, for kbqa report --findings",
    )
    options = parser.parse_args(arguments)
    design = load_design()
    options.finding = options.finding or list(design.findings)
    for name in options.finding:
        if name not in design.findings:
            parser.error(f"there is no finding {name}: name one of {', '.join(design.findings)}")
    if options.run:
        variant, seed = options.run[0], int(options.run[1])
        outcome = run(design, design.variants[variant], seed, options.shelf)
        append(Entry(variant, seed, design.digest(variant), outcome))
        return 0
    failed = [] if options.table or options.power else _run_all(design, options)
    runs = current(design, read(), options.loop)
    if options.power:
        _show(power_table(design), spreads_table(design, runs))
        return 0
    if options.report is not None:
        options.report.write_text(findings(design, runs).model_dump_json(indent=1), encoding="utf-8")
    _show(findings_table(design, runs), variants_table(design, runs))
    for what in failed:
        sys.stderr.write(f"failed: {what}\n")
    return 1 if failed else 0


def _show(*tables: Iterable[str]) -> None:
    sys.stdout.write("\n\n".join("\n".join(table) for table in tables) + "\n")


def _run_all(design: Design, options: argparse.Namespace) -> list[str]:
    """Run what the next looks need, each run in a process of its own; returns the runs that failed.

    It ends when every finding is decided or has had its last look.
    """
    failed: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        while True:
            wanted = [
                (variant, seed)
                for variant, seed in missing(design, current(design, read()), options.finding)
                if f"{variant} {seed}" not in failed
            ]
            if not wanted:
                return failed
            codes = pool.map(lambda one: _run(options.shelf, *one), wanted)
            failed += [
                f"{variant} {seed}" for (variant, seed), code in zip(wanted, codes, strict=True) if code
            ]


def _run(shelf: Path, variant: str, seed: int) -> int:
    command = [
        sys.executable,
        "-m",
        "benchmarks.learning",
        "--shelf",
        str(shelf),
        "--run",
        variant,
        str(seed),
    ]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
