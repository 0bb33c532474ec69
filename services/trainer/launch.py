"""python -m services.trainer.launch [--run DIR --lease TOKEN]: one machine's processes of a training.

Torchrun gives each process its rank, and ends all processes of a machine when one dies. On the first machine
the trainer starts this program for each run, and starts it again from the last checkpoint when it has died;
standard input is the trainer's, on which the first process listens (`services.trainer.run`).

On every other machine (KBQA_TRAINING_NODE_RANK above 0) it runs all the time: it waits for a run of the first
machine, takes part until that ends or fails, and waits for the next one.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from kbqa.telemetry.logs import configure_logging
from services.http import exit_code
from services.processes import describe_exit
from services.trainer.settings import TrainerSettings
from services.trainer.supervisor import Exit

logger = logging.getLogger(__name__)

_LOST = 1
_START = "start"  # key of the name of the first machine's newest start
_SIGNALLED = 128  # exit code of a process killed by signal n: 128 + n, as in a shell
# The first machine waits so long for the others. They wait in turns: a signal is only seen between two.
_LONGEST_WAIT_S, _TURN_S = 600, 60
_PAUSE_S = 1.0  # until the first machine's processes have ended, too


def main(argv: Sequence[str] | None = None) -> int:
    """Train a run to its end; returns `Exit.DONE`, or the exit code of the process that failed first."""
    parser = argparse.ArgumentParser(
        prog="trainer.launch", description="Train runs in several processes (KBQA_TRAINING_PROCESSES)."
    )
    parser.add_argument("--run", help="the run's directory; only on the first machine, by the trainer")
    parser.add_argument("--lease", help="token of the trainer's lease; likewise")
    options = parser.parse_args(argv)
    settings = TrainerSettings.load()
    if settings.node_rank == 0 and (options.run is None or options.lease is None):
        parser.error("--run and --lease are missing: the trainer starts runs (KBQA_TRAINING_NODE_RANK is 0)")
    configure_logging("trainer", settings.log_level, settings.log_format)
    if settings.node_rank == 0:
        return launch(settings, "--run", options.run, "--lease", options.lease)
    return exit_code(lambda: _serve(settings))


def launch(settings: TrainerSettings, *arguments: str) -> int:
    """Start this machine's processes with these arguments and wait for their end; returns an exit code."""
    program = ["-P", "-m", "services.trainer.run", *arguments]
    try:
        meeting = _meet(settings)
        if meeting is None:
            return _LOST
        elastic_launch(meeting.configuration, sys.executable)(*program)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode >= 0 else _SIGNALLED - failure.exitcode
    except DistError as error:
        if settings.node_rank == 0:
            logger.error(
                "the other machines did not come: start services.trainer.launch on each of them",
                extra={"nodes": settings.nodes, "rendezvous": settings.rendezvous, "reason": str(error)},
            )
        return _LOST
    return Exit.DONE


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Where torchrun's agents meet; the store is open as long as this is referred to."""

    configuration: LaunchConfig
    store: TCPStore | None = None


def _meet(settings: TrainerSettings) -> _Meeting | None:
    """Where to meet the other machines; None if there is nothing new to take part in.

    Each start on the first machine has its own name. When a process of another machine has died, the first
    machine does not know of it at once: what is open there still belongs to the start that failed.

    Raises:
        DistError: the first machine does not answer.
    """
    common: dict[str, Any] = {
        "min_nodes": settings.nodes,
        "max_nodes": settings.nodes,
        "nproc_per_node": settings.processes,
        "max_restarts": 0,
    }
    name = uuid.uuid4().hex
    if settings.nodes == 1:
        return _Meeting(LaunchConfig(**common, run_id=name, rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0"))
    assert settings.rendezvous is not None, "the settings require it"
    host, _, port = settings.rendezvous.rpartition(":")
    first, wait_s = settings.node_rank == 0, _LONGEST_WAIT_S if settings.node_rank == 0 else _TURN_S
    store = TCPStore(
        host,
        int(port),
        is_master=first,
        timeout=timedelta(seconds=wait_s),
        wait_for_workers=False,
        multi_tenant=True,  # torchrun opens it again
    )
    if first:
        store.set(_START, name)
    else:
        name = store.get(_START).decode()
        if store.add(f"{name}/{settings.node_rank}", 1) > 1:
            return None
    configuration = LaunchConfig(
        **common,
        run_id=name,
        # Unlike c10d's, this rendezvous keeps the order of the machines: rank 0 is the trainer's.
        rdzv_backend="static",
        rdzv_endpoint=settings.rendezvous,
        rdzv_configs={"rank": settings.node_rank, "timeout": wait_s},
    )
    return _Meeting(configuration, store)


def _serve(settings: TrainerSettings) -> None:
    """Take part in one run after the other, until told to stop."""
    # When this process dies, the end of this pipe tells those that it started; see `services.trainer.run`.
    reading, _ = os.pipe()
    os.dup2(reading, 0)
    while True:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun sets its own while processes run
        try:
            code = launch(settings)
        except SignalException:
            return
        if code != _LOST:
            logger.info("a run has ended here", extra={"exit": describe_exit(code)})
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
