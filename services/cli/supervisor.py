"""Runs all services on this machine as child processes of this one.

    with Stack(home, free_ports=True) as stack:
        stack.wait_ready(timeout_s=60)
        httpx.get(f"{stack.urls['kg_server']}/v1/kg")

A service that dies is started again. No child outlives the process that created the stack; see
`services.cli.reaper`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kbqa.errors import ConfigurationError, KbqaError
from kbqa.recipes import Recipe
from services.access.sites import is_loopback
from services.cli.programs import (
    Program,
    choose_ports,
    read_service_key,
    redis_program,
    service_key_path,
    service_program,
)
from services.processes import BackOff, bound_log, describe_exit, last_line
from services.settings import SERVICES

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_BACK_OFF = BackOff(first_s=0.5, longest_s=30.0)
_STEADY_S = 30.0  # a service that has run longer starts with a new count of failures
_HOPELESS = 3  # failures in a row after which a service that was never ready counts as hopeless
_GRACE_S = 20.0  # from SIGTERM to SIGKILL; services drain for 10
_WRONG_SETTING = 2  # exit code of a service whose settings are wrong

# Programs that the others depend on; they are stopped last.
_FOUNDATIONS = ("redis", "kg_server")

_REPLICATED = "rollout_worker"
_MOST_WORKERS = 4


def training_workers(recipe: Recipe | None = None) -> int:
    """Number of rollout workers with which training is fastest on this machine; each uses one thread.

    For a chooser it is 1: all episodes of a worker share its encoded texts, and a second worker would encode
    the same texts again. With vLLM it is 1: a worker owns its servers, and changes their weights.
    """
    chooses = recipe is not None and recipe.protocol.name == "chooser"
    if chooses or os.environ.get("KBQA_ROLLOUT_WORKER_ENGINE", os.environ.get("KBQA_ENGINE")) == "vllm":
        return 1
    return min(os.cpu_count() or 1, _MOST_WORKERS)


class StackError(KbqaError):
    """A program of a local stack does not become ready."""


@dataclass(slots=True)
class _Child:
    """A program and its current process."""

    program: Program
    process: subprocess.Popen[bytes]
    started_at: float
    failures: int = 0
    restart_at: float | None = None
    was_ready: bool = False
    exit_code: int | None = None


class Stack:
    """Services as child processes, with an embedded Redis if they need one.

    Use it in a `with` statement, or call `start` and `stop`.

    Args:
        home: `KBQA_HOME` of every service.
        services: names from `services.settings.SERVICES`.
        rollout_workers: number of rollout worker processes, if this service is included. The second process
            is called rollout_worker-2, and so on; all after the first listen on any free port.
        ports: port by service or "redis"; others get their usual port.
        free_ports: use any free port for names that are not in `ports`.
        host: address on which the services listen; Redis always listens on 127.0.0.1.
        log_dir: directory of the log files, one for each program (default: HOME/logs).
        environment: variables of the services in addition to this process's.
        on_event: called with a message when a program ends unexpectedly or is restarted.

    Attributes:
        urls: base URL of each process of a service.
        redis_url: URL of the embedded Redis, or of the one in `KBQA_REDIS_URL` or `REDIS_URL`; None if no
            service here needs Redis, or `KBQA_BROKER_URL` names another broker.
        service_key_path: file of the key that kg_server and trainer require; None if they require none, or
            keys of the environment.
    """

    def __init__(
        self,
        home: Path,
        *,
        services: Iterable[str] = SERVICES,
        rollout_workers: int = 1,
        ports: Mapping[str, int] | None = None,
        free_ports: bool = False,
        host: str = "127.0.0.1",
        log_dir: Path | None = None,
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[str], None] = logger.warning,
    ) -> None:
        self.home = home.absolute()
        self.host = host
        self.services = tuple(service for service in SERVICES if service in set(services))
        self._replicas = tuple(
            f"{_REPLICATED}-{number}"
            for number in range(2, rollout_workers + 1)
            if _REPLICATED in self.services
        )
        self.log_dir = log_dir or self.home / "logs"
        self.urls: dict[str, str] = {}
        self.service_key_path: Path | None = None
        self.redis_url = os.environ.get("KBQA_REDIS_URL") or os.environ.get("REDIS_URL")
        self._ports, self._free_ports = dict(ports or {}), free_ports
        self._extra_environment = dict(environment or {})
        self._on_event = on_event
        self._children: dict[str, _Child] = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._reaper: subprocess.Popen[bytes] | None = None
        self._home_lock: IO[bytes] | None = None
        self._monitor = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start every program; returns before they are ready.

        Raises:
            ConfigurationError: a port is in use, or another stack's Redis runs in this home. No process is
                left running.
        """
        broker = self.redis_url or os.environ.get("KBQA_BROKER_URL")
        embedded_redis = not broker and bool({"trainer", "rollout_worker"} & set(self.services))
        processes = [*self.services, *self._replicas]
        wanted = [*processes, *(["redis"] if embedded_redis else [])]
        ports = choose_ports(self.host, wanted, self._ports, free=self._free_ports)
        self.urls = {name: f"http://{_reachable(self.host)}:{ports[name]}" for name in processes}
        self.log_dir.mkdir(parents=True, exist_ok=True)
        try:
            programs = [self._redis(ports["redis"])] if embedded_redis else []
            environment = self._environment(ports)
            for service in self.services:
                own = dict(environment)
                if embedded_redis and service == "kg_server":
                    # Cached answers would take the room of messages. Its memory holds them as well.
                    del own["KBQA_REDIS_URL"]
                programs.append(service_program(service, self.urls[service], own))
            for name in self._replicas:
                own = {**environment, f"KBQA_{_REPLICATED.upper()}_PORT": str(ports[name])}
                programs.append(service_program(_REPLICATED, self.urls[name], own, name=name))
            self._start_reaper()
            for program in programs:
                self._children[program.name] = _Child(program, self._spawn(program), time.monotonic())
        except BaseException:
            self.stop()
            raise
        self._monitor.start()

    def wait_ready(self, timeout_s: float) -> None:
        """Block until every program can do its work.

        Raises:
            StackError: a program is not ready in time, or keeps failing; the message contains its log's path.
        """
        deadline = time.monotonic() + timeout_s
        while pending := self.pending():
            for name in pending:
                self._raise_if_hopeless(self._children[name])
            if time.monotonic() > deadline:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in pending.items())
                raise StackError(f"not ready after {timeout_s:.0f} s: {reasons} (logs: {self.log_dir})")
            time.sleep(_POLL_S)

    def pending(self) -> dict[str, str]:
        """The programs that are not ready, and why."""
        reasons = {}
        for name, child in list(self._children.items()):
            # Do not probe a program that is not running: another program may listen on its port.
            reason = "not running" if child.process.poll() is not None else child.program.unready()
            if reason is None:
                child.was_ready = True
            else:
                reasons[name] = reason
        return reasons

    def pids(self) -> dict[str, int]:
        """Process id of each running program."""
        return {
            name: child.process.pid for name, child in self._children.items() if child.process.poll() is None
        }

    def stop(self) -> None:
        """Stop everything, Redis and kg_server last; can be called repeatedly."""
        self._stopping.set()
        with self._lock:
            children = list(self._children.values())
        _terminate(child.process for child in children if child.program.name not in _FOUNDATIONS)
        _terminate(child.process for child in children if child.program.name in _FOUNDATIONS)
        if self._reaper is not None:
            assert self._reaper.stdin is not None
            self._reaper.stdin.close()
            self._reaper.wait()
        if self._home_lock is not None:
            self._home_lock.close()
        if self._monitor.is_alive():
            self._monitor.join()

    def _environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        environment = {**os.environ, **self._extra_environment, "KBQA_HOME": str(self.home)}
        for service in self.services:
            environment[f"KBQA_{service.upper()}_URL"] = self.urls[service]
            environment[f"KBQA_{service.upper()}_HOST"] = self.host
            environment[f"KBQA_{service.upper()}_PORT"] = str(ports[service])
        if self.redis_url is not None:
            environment["KBQA_REDIS_URL"] = self.redis_url
        return self._with_keys(environment)

    def _with_keys(self, environment: dict[str, str]) -> dict[str, str]:
        """The environment with a key for kg_server and trainer, where other machines can reach them."""
        if is_loopback(self.host):
            return environment
        for service in {"kg_server", "trainer"} & set(self.services):
            prefix = f"KBQA_{service.upper()}_"
            if any(f"{prefix}{name}" in environment for name in ("API_KEYS", "KEYS_FILE", "REQUIRE_KEYS")):
                continue  # the operator has decided
            self.service_key_path = service_key_path(self.home)
            environment[f"{prefix}API_KEYS"] = environment[f"{prefix}API_KEY"] = read_service_key(self.home)
            if self._free_ports:
                ports = choose_ports(self.host, ["operations"], {}, free=True)
                environment[f"{prefix}OPERATIONS_PORT"] = str(ports["operations"])
        return environment

    def _redis(self, port: int) -> Program:
        """The embedded Redis; the reaper holds a lock to the end, so that two never append to one file."""
        directory = self.home / "redis"
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ConfigurationError(
                f"another stack already runs in {self.home}: use it, stop it, or choose another KBQA_HOME"
            ) from None
        self._home_lock = lock
        self.redis_url = f"redis://127.0.0.1:{port}/0"
        return redis_program(directory, port)

    def _start_reaper(self) -> None:
        locks = () if self._home_lock is None else (self._home_lock.fileno(),)
        command = [sys.executable, "-P", "-m", "services.cli.reaper", str(_GRACE_S)]
        self._reaper = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0, pass_fds=locks)

    def _spawn(self, program: Program) -> subprocess.Popen[bytes]:
        assert self._reaper is not None
        with self.log_path(program.name).open("ab") as log:
            return subprocess.Popen(
                program.command,
                env=program.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=self._reaper.pid,
            )

    def log_path(self, name: str) -> Path:
        """File of a program's output."""
        return self.log_dir / f"{name}.log"

    def _watch(self) -> None:
        while not self._stopping.wait(_POLL_S):
            for child in self._children.values():
                with self._lock:
                    if self._stopping.is_set():
                        return
                    try:
                        self._revive(child)
                        bound_log(self.log_path(child.program.name))
                    except Exception:
                        # Whatever the error (no memory, closed output), keep supervising the others.
                        logger.exception("cannot supervise %s", child.program.name)

    def _revive(self, child: _Child) -> None:
        """Notice the end of a process, and start another one after a pause."""
        now, name = time.monotonic(), child.program.name
        if child.process.poll() is None:
            return
        if child.restart_at is None:
            child.exit_code = child.process.returncode
            child.failures = 1 if now - child.started_at > _STEADY_S else child.failures + 1
            pause_s = _BACK_OFF.pause_s(child.failures)
            child.restart_at = now + pause_s
            self._on_event(f"{name} {describe_exit(child.exit_code)}; it is started again in {pause_s:g} s")
        elif now >= child.restart_at:
            child.process, child.started_at, child.restart_at = self._spawn(child.program), now, None
            self._on_event(f"{name} is started again")

    def _raise_if_hopeless(self, child: _Child) -> None:
        if child.was_ready or child.exit_code is None:
            return
        if child.exit_code == _WRONG_SETTING or child.failures >= _HOPELESS:
            path = self.log_path(child.program.name)
            said = (last_line(path) or "it wrote nothing").removeprefix("error: ")
            raise StackError(
                f"{child.program.name} {describe_exit(child.exit_code)}: {said} (its log: {path})"
            )


def _terminate(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + _GRACE_S
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _reachable(host: str) -> str:
    """The address at which this machine reaches a program that listens on `host`."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
