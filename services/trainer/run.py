"""python -m services.trainer.run --run DIR --lease TOKEN: the process that trains one run.

The trainer starts it, and it ends when the trainer ends: its standard input is a pipe. A line on the pipe
means to stop. Once nobody can write to the pipe any more, the trainer has died. For exit codes see `Exit`.

With torchrun (`services.trainer.launch`), several of these processes train together. The first one leads and
does what is described here; the others follow it, need no directory, and end like it with what started them.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from kbqa.errors import ConfigurationError, KbqaError, LeaseLostError, PolicyStoreUnavailableError
from kbqa.kg.client import HttpGraphTools
from kbqa.policies.vllm import VllmServer
from kbqa.policies.vllm.sender import WeightSender
from kbqa.policy_store.durable import NO_ROOM
from kbqa.recipes import Recipe
from kbqa.runs import training
from kbqa.runs.context import EVALUATED_AT_A_TIME, Context, Stopped
from kbqa.runs.directory import RunDirectory
from kbqa.runs.journal import Journal
from kbqa.runs.lease import fence
from kbqa.runs.queued import QueuedSource
from kbqa.telemetry.logs import configure_logging, log_context
from kbqa.training.learner import follow
from kbqa.training.ranks import ALONE, Ranks
from kbqa.wire import ROLL_OUT_TASK, ROLLOUTS, RolloutRequest, encode
from services.broker import Outbox, create_celery
from services.trainer.settings import TrainerSettings
from services.trainer.sinks import open_sinks
from services.trainer.supervisor import Exit

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Train a run to its end; returns the exit code."""
    parser = argparse.ArgumentParser(prog="trainer.run", description="Train one run.")
    parser.add_argument("--run", type=Path, help="the run's directory; only the first process needs it")
    parser.add_argument("--lease", type=int, help="token of the trainer's lease; likewise")
    options = parser.parse_args(argv)
    threading.Thread(target=_end_with_parent, name="orphanhood", daemon=True).start()
    ranks = Ranks.join()
    if ranks.rank == 0 and (options.run is None or options.lease is None):
        parser.error("--run and --lease are missing")
    code = _follow(ranks) if ranks.rank else _lead(RunDirectory(options.run), options.lease, ranks)
    ranks.leave()
    return code


def _follow(ranks: Ranks) -> Exit:
    """Train together with the first process, on a share of its data."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = TrainerSettings.load()
    configure_logging("trainer", settings.log_level, settings.log_format)
    disable_progress_bar()
    torch.set_num_threads(threads(settings, ranks.device))
    with log_context(rank=ranks.rank):
        follow(ranks)
    return Exit.DONE


def _lead(directory: RunDirectory, token: int, ranks: Ranks) -> Exit:
    stop = threading.Event()
    threading.Thread(target=_obey, args=(stop,), name="obedience", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Ctrl-C reaches the whole process group; the trainer decides what happens to the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = TrainerSettings.load(home=directory.path.parent.parent)
    configure_logging("trainer", settings.log_level, settings.log_format)
    disable_progress_bar()
    torch.set_num_threads(threads(settings, ranks.device))
    with log_context(run=directory.id):
        sinks = open_sinks(settings.sinks, directory)
        journal = Journal(directory, sinks)
        try:
            record_device(settings, ranks, journal)
            train(directory, settings, journal, stop, fence(directory.path.parent, token), ranks)
        except Stopped:
            logger.info("run stopped", extra={"phase": journal.phase})
            return Exit.STOPPED
        except LeaseLostError as error:
            logger.error("run abandoned", extra={"reason": str(error)})
            return Exit.ABANDONED
        except (KbqaError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in NO_ROOM:
                raise
            if stop.is_set() and isinstance(error, PolicyStoreUnavailableError):
                logger.warning("run stopped while it waited", extra={"reason": str(error)})
                return Exit.STOPPED
            logger.exception("run failed")
            return _fail(journal, error)
        finally:
            for sink in sinks:
                sink.close()
        return Exit.DONE


def threads(settings: TrainerSettings, device: torch.device) -> int:
    """Threads of a process that trains on this device; see `TrainerSettings`."""
    if settings.threads is not None:
        return settings.threads
    return 1 if device.type == "cpu" else max(1, len(os.sched_getaffinity(0)) // settings.processes)


def record_device(settings: TrainerSettings, ranks: Ranks, journal: Journal) -> None:
    """Let the run's results say on what it is trained.

    Raises:
        ConfigurationError: it is the CPU, although this trainer is to have GPUs or some of its processes
            have them.
    """
    if ranks.device.type == "cpu":
        advice = "check the driver, the container runtime and which GPUs this process gets (nvidia-smi)"
        if ranks.lacking:
            raise ConfigurationError(
                f"not every process has a GPU of its own ({'; '.join(ranks.lacking)}): {advice}, or set "
                "KBQA_TRAINING_PROCESSES to the number of GPUs of each machine; then resume the run"
            )
        if settings.device == "cuda":
            raise ConfigurationError(
                f"KBQA_TRAINER_DEVICE=cuda: torch finds no GPU: {advice}, or set KBQA_TRAINER_DEVICE=auto to "
                "train on the CPU; then resume the run"
            )
        if torch.version.cuda is not None:
            logger.warning(
                f"the run is trained on the CPU: torch is built for GPUs, but finds none: {advice}",
                extra={"cuda": torch.version.cuda},
            )
    journal.keep(device=ranks.devices)


@contextmanager
def _colocated(
    settings: TrainerSettings, recipe: Recipe
) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """What gives the trainer its GPU alone: a colocated server sleeps, if there is one."""
    if settings.colocated_vllm_url is None:
        yield nullcontext
        return
    if recipe.schedule.max_staleness > 0:
        # Its worker could be changing the weights of a server that sleeps.
        raise ConfigurationError(
            "KBQA_TRAINER_COLOCATED_VLLM_URL: rollouts and training take turns on one GPU, which needs "
            f"schedule.max_staleness=0 (it is {recipe.schedule.max_staleness})"
        )
    server = VllmServer(settings.colocated_vllm_url)
    server.wake()  # a process that died while training has left it asleep

    @contextmanager
    def alone() -> Iterator[None]:
        with server.asleep():
            yield
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # for the server, which wakes up now

    try:
        yield alone
    finally:
        server.close()


@contextmanager
def _sending(settings: TrainerSettings) -> Iterator[None]:
    """Send weights to workers that ask for them while the context lasts, if there is a port for it."""
    if settings.weights_port is None:
        yield
        return
    store = settings.policies()
    sender = WeightSender(
        lambda run, version: store.get(run, version).path, settings.host, settings.weights_port
    )
    try:
        yield
    finally:
        sender.close()


def _fail(journal: Journal, error: Exception) -> Exit:
    """Record why the run cannot continue, if there is disk space for that."""
    reason = f"{error}: free some space, then resume the run" if isinstance(error, OSError) else str(error)
    try:
        journal.fail(reason)
    except OSError as full:
        logger.error("the reason of the failure cannot be written", extra={"reason": str(full)})
    return Exit.FAILED


def train(
    directory: RunDirectory,
    settings: TrainerSettings,
    journal: Journal,
    stop: threading.Event,
    require_held: Callable[[], None],
    ranks: Ranks = ALONE,
) -> None:
    """Train all phases of a run that are not finished yet.

    Args:
        require_held: see `kbqa.runs.lease.fence`.

    Raises:
        KbqaError: the run cannot continue.
        Stopped: the run was told to stop.
    """
    record = directory.read()
    recipe = record.resolved_recipe()
    celery = create_celery("trainer", settings.broker_url, prefix=settings.queue_prefix)
    # Each request may be sent three times; without a limit, they pile up while no worker runs.
    at_most = 3 * max(recipe.schedule.max_in_flight, EVALUATED_AT_A_TIME)
    outbox = Outbox(celery, ROLLOUTS, ROLL_OUT_TASK, at_most=at_most)

    def send_request(request: RolloutRequest) -> None:
        outbox.send(encode(request))

    tools = HttpGraphTools(settings.kg_server_url, api_key=settings.kg_server_api_key)
    with tools, _sending(settings), _colocated(settings, recipe) as alone:
        training.train(
            Context(
                directory=directory,
                record=record,
                recipe=recipe,
                store=settings.policies(until=stop),
                tools=tools,
                journal=journal,
                rollouts=QueuedSource(send_request, directory.inbox),
                stop=stop,
                home=settings.home,
                data=settings.data_directory,
                graph_wait_s=settings.graph_wait_s,
                traces=settings.traces,
                fence=require_held,
                ranks=ranks,
                alone=alone,
            )
        )


def _obey(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 64):  # unbuffered: a lock on it would block the interpreter's exit
        stop.set()


def _end_with_parent() -> None:
    """Exit once nobody can write to standard input any more: whoever started this process has died.

    Its successor starts the run from the last checkpoint, and two processes must not train one run.
    """
    ends = select.poll()
    ends.register(sys.stdin.fileno(), 0)  # for the end alone; the first process reads the lines
    while True:
        if any(event & select.POLLHUP for _, event in ends.poll()):
            os._exit(Exit.ABANDONED)


if __name__ == "__main__":
    sys.exit(main())
