"""python -m services.trainer.launch --processes N --run DIR --lease TOKEN: a run in N processes of torchrun.

Torchrun gives each process its rank, and ends all processes when one dies; the trainer then restarts them
from the last checkpoint. They inherit standard input, on which the first process listens
(`services.trainer.run`).
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from services.trainer.supervisor import Exit

_SIGNALLED = 128  # exit code of a process killed by signal n: 128 + n, as in a shell


def main(argv: Sequence[str] | None = None) -> int:
    """Train a run to its end; returns `Exit.DONE`, or the exit code of the process that failed first."""
    parser = argparse.ArgumentParser(prog="trainer.launch", description="Train one run in several processes.")
    parser.add_argument("--processes", type=int, required=True, help="number of processes, one for each GPU")
    parser.add_argument("--run", required=True, help="the run's directory")
    parser.add_argument("--lease", required=True, help="token of the trainer's lease")
    options = parser.parse_args(argv)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=options.processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=0,
    )
    try:
        program = ("-P", "-m", "services.trainer.run", "--run", options.run, "--lease", options.lease)
        elastic_launch(config, sys.executable)(*program)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode >= 0 else _SIGNALLED - failure.exitcode
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main())
