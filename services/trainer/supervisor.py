"""Keeps the training process of the active run alive."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from kbqa.errors import MachineTooSmallError, PlanError, QueueUnavailableError, RunConflictError
from kbqa.recipes import Recipe
from kbqa.runs.directory import RunDirectory, RunRecord, Runs, State
from kbqa.runs.lease import Lease
from kbqa.telemetry.metrics import Metrics
from services.processes import BackOff, bound_log, describe_exit, last_line
from services.trainer.claim import QueueClaim
from services.trainer.settings import TrainerSettings

logger = logging.getLogger(__name__)

_BACK_OFF = BackOff(first_s=0.2, longest_s=10.0)
_POLL_S = 0.05
_LOG_S = 60.0  # between two looks at the length of the log


class Exit(IntEnum):
    """Exit codes of a training process; all others mean a crash."""

    DONE = 0
    FAILED = 2
    """The run's progress contains the reason; a restart would not help."""
    STOPPED = 3
    ABANDONED = 4
    """The trainer died, or lost its lease to another one."""


def abandon(reason: str) -> None:
    """End this trainer, because the work is another one's now. Whoever restarts this one lets it stand by."""
    logger.error("this trainer ends", extra={"reason": reason})
    os.kill(os.getpid(), signal.SIGTERM)


class Supervisor:
    """Runs at most one training process, for the active run.

    Args:
        environment: environment of the training process.
        claim: on the queues, which the holder of the home's lease takes.
        fit: returns a recipe as it is trained here; see `kbqa.planning.guard.fitted`.
    """

    def __init__(
        self,
        runs: Runs,
        settings: TrainerSettings,
        metrics: Metrics,
        environment: dict[str, str],
        claim: QueueClaim,
        fit: Callable[[Recipe], Recipe],
    ) -> None:
        self._runs, self._settings, self._environment = runs, settings, environment
        self._claim, self._fit = claim, fit
        metrics.gauge("kbqa_trainer_run_active").set_function(lambda: self.active is not None)
        self._restarts = metrics.counter("kbqa_trainer_restarts_total")
        self._lock = threading.Lock()
        self._watch: _Watch | None = None
        self._lease: Lease | None = None

    def take_over(self) -> str | None:
        """Become the trainer of this home; returns why that is not possible yet, or None."""
        with self._lock:
            try:
                self._take_lease()
            except (RunConflictError, QueueUnavailableError) as error:
                return str(error)
        return None

    @property
    def active(self) -> str | None:
        """Id of the active run."""
        watch = self._watch
        return watch.directory.id if watch is not None and watch.thread.is_alive() else None

    def begin(self, create: Callable[[], RunDirectory]) -> RunDirectory:
        """Create a run and make it the active one.

        Raises:
            RunConflictError: another one is active, or another trainer; nothing is created.
        """
        with self._lock:
            lease = self._take_lease()
            self._require_idle()
            directory = create()
            self._start(directory, lease)
            return directory

    def resume(self, directory: RunDirectory) -> None:
        """Make a run active again.

        It may have been begun on another machine, so it is planned again.

        Raises:
            RunConflictError: a run is active, or another trainer, or this run is done.
            MachineTooSmallError: it does not fit this machine.
            PlanError: it cannot be planned.
        """
        recipe = self._planned(directory.require_unfinished())  # takes seconds
        with self._lock:
            lease = self._take_lease()
            self._require_idle()
            changes = {"state": State.RUNNING, "error": None, "recipe": recipe}
            directory.write(directory.require_unfinished().model_copy(update=changes))
            self._start(directory, lease)

    def stop(self, directory: RunDirectory) -> None:
        """Stop the active run at the next point where no work is lost; returns when it has stopped.

        That point is the end of a micro-batch, or of a step whose weights change already; then a checkpoint
        is written. Unlike a termination, this has no deadline that anybody else sets.

        Raises:
            RunConflictError: the run is not active.
        """
        watch = self._watch
        if watch is None or self.active != directory.id:
            raise RunConflictError(f"run {directory.id} is not active, it is {directory.read().state}")
        watch.end(State.STOPPED, self._settings.stop_wait_s)

    def resume_interrupted(self) -> None:
        """Resume the run that was active when the trainer ended, if there is one."""
        for directory in self._runs.all():
            if directory.read().state is not State.RUNNING:
                continue
            if not self._settings.auto_resume or self.active is not None:
                directory.write(directory.read().model_copy(update={"state": State.STOPPED}))
                continue
            try:
                self.resume(directory)
            except (MachineTooSmallError, PlanError) as error:
                logger.error("a run does not resume", extra={"run": directory.id, "reason": str(error)})
                failed = {"state": State.FAILED, "error": str(error)}
                directory.write(directory.read().model_copy(update=failed))
            else:
                logger.info("run resumed", extra={"run": directory.id})

    def close(self) -> None:
        """End the training process; its run keeps the state running and can be resumed."""
        if self._watch is not None and self.active is not None:
            self._watch.end(None, self._settings.drain_s)
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            self._claim.release()
            lease.release()

    def _planned(self, record: RunRecord) -> dict[str, Any]:
        """The values of a run's recipe, with rows that fit this machine."""
        recipe = record.resolved_recipe()
        planned = self._fit(recipe)
        return record.recipe if planned == recipe else planned.model_dump(mode="json")

    def _take_lease(self) -> Lease:
        if self._lease is None:
            lease = Lease.take(self._runs.root, f"trainer {socket.gethostname()}-{os.getpid()}")
            try:
                self._claim.take(lease.home, lease.holder)
            except BaseException:
                lease.release()
                raise
            self._lease = lease
        return self._lease

    def _require_idle(self) -> None:
        if self.active is not None:
            raise RunConflictError(
                f"run {self.active} is active, and a trainer runs only one at a time: "
                f"follow it, or stop it with POST /v1/runs/{self.active}/stop"
            )

    def _start(self, directory: RunDirectory, lease: Lease) -> None:
        self._watch = _Watch(directory, lease, self._settings, self._environment, self._restarts.inc)
        self._watch.thread.start()


class _Watch:
    """Runs the training process of one run, and restarts it when it dies.

    Args:
        lease: the training process holds it, too.
        died: called at every restart.
    """

    def __init__(
        self,
        directory: RunDirectory,
        lease: Lease,
        settings: TrainerSettings,
        environment: dict[str, str],
        died: Callable[[], None],
    ) -> None:
        self.directory, self._lease = directory, lease
        self._settings, self._environment, self._died = settings, environment, died
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False
        self._state_at_end: State | None = None
        self.thread = threading.Thread(target=self._run, name=f"run-{directory.id}", daemon=True)

    def end(self, state: State | None, patience_s: float) -> None:
        """Tell the process to stop, and kill it if it takes longer than `patience_s`.

        Args:
            state: state of the run afterwards; None keeps it running.
        """
        with self._lock:
            self._ending, self._state_at_end = True, state
            process = self._process
        if process is not None:
            assert process.stdin is not None
            with contextlib.suppress(OSError, ValueError):  # the process has already ended
                process.stdin.write(b"stop\n")
                process.stdin.flush()
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                logger.warning("the training process is killed", extra={"run": self.directory.id})
                process.kill()
        self.thread.join()

    def _run(self) -> None:
        failures, pause_s = 0, 0.0
        while True:
            before = self._mark()
            code = self._train(pause_s)
            if code is None or (self._ending and code not in (Exit.DONE, Exit.FAILED)):
                if self._state_at_end is not None:
                    self._write(state=self._state_at_end)
                return
            if code == Exit.ABANDONED:
                abandon("the lease was lost")
                return
            if code == Exit.DONE:
                self._write(state=State.DONE)
                return
            if code == Exit.FAILED:
                error = self.directory.progress().get("error") or f"see {self.directory.log_path}"
                self._write(state=State.FAILED, error=str(error))
                return
            failures = 1 if self._mark() != before else failures + 1
            if failures > self._settings.max_restarts:
                self._write(state=State.FAILED, error=self._epitaph(code, failures))
                return
            pause_s = _BACK_OFF.pause_s(failures)
            logger.warning(
                "the training process died and is restarted",
                extra={"run": self.directory.id, "exit": describe_exit(code), "pause_s": pause_s},
            )
            self._write(restarts=self.directory.read().restarts + 1)
            self._died()

    def _train(self, pause_s: float) -> int | None:
        """Run the process to its end; returns its exit code, or None if the run ended before the start."""
        deadline = time.monotonic() + pause_s
        while time.monotonic() < deadline and not self._ending:
            time.sleep(_POLL_S)
        with self._lock:
            if self._ending:
                return None
            self._process = process = self._spawn()
        code = self._wait(process)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        return code

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            bound_log(self.directory.log_path)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_LOG_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        # -P: do not import a directory "services" in the working directory instead of ours.
        several = self._settings.processes * self._settings.nodes > 1
        program = f"services.trainer.{'launch' if several else 'run'}"
        command = [sys.executable, "-P", "-m", program]
        command += ["--run", str(self.directory.path), "--lease", str(self._lease.token)]
        with self.directory.log_path.open("ab") as log:
            # The end of the pipe tells the process that this one has died, for whatever reason.
            return subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(self._lease.fileno(),),
            )

    def _mark(self) -> tuple[object, ...]:
        """A value that changes when the run has made progress that survives a crash."""
        checkpoints = self.directory.checkpoints_path
        names = sorted(path.name for path in checkpoints.iterdir()) if checkpoints.is_dir() else []
        progress = self.directory.progress()
        return (sorted(progress.get("results", {}).get("versions", {})), names)

    def _epitaph(self, code: int, failures: int) -> str:
        log = self.directory.log_path
        return (
            f"the training process died {failures} times in a row without progress; "
            f"the last time it {describe_exit(code)} ({log}: {last_line(log) or 'empty'})"
        )

    def _write(self, **changes: object) -> None:
        """Change the run's record; waits while the disk is full."""
        while True:
            try:
                self.directory.write(self.directory.read().model_copy(update=changes))
                return
            except OSError as error:
                logger.error("a run's record cannot be written", extra={"reason": str(error)})
            deadline = time.monotonic() + _BACK_OFF.longest_s
            while time.monotonic() < deadline:
                if self._ending:
                    return
                time.sleep(_POLL_S)
