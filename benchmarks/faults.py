"""What may go wrong in a stack. A fault is a small value: a name, a duration, and how it is inflicted."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from kbqa.policy_store.durable import write_file
from kbqa.wire import QUEUES
from services.cli.supervisor import Stack
from tests.service import Service

# Python imports this module before all others. (With libfaketime, time.sleep fails.)
_SITECUSTOMIZE = """
import pathlib, time

_file, _time = pathlib.Path(__file__).with_name("offset"), time.time
time.time = lambda: _time() + float(_file.read_text() or 0)
"""
_OFF_S = 60.0
_FSYNC_S = 0.3
_BLOCK = 2**20
_EVERY_S = 0.05


@dataclass(frozen=True)
class Site:
    """The stack in which things go wrong.

    Attributes:
        home: `KBQA_HOME`, on a small disk of its own if `small_disk`.
        run: directory of the run.
        worker: a rollout worker besides those of the stack.
        clock: file of the seconds by which that worker's clock is off; see `adjustable_clock`.
        service: starts another service with the stack's broker and graph, in another home.
    """

    stack: Stack
    home: Path
    run: Path
    small_disk: bool
    worker: Service
    clock: Path
    service: Callable[[str, Path], Service]

    def process(self, name: str) -> psutil.Process | None:
        """A running process of the stack; `training process` is the trainer's child."""
        pid = self.stack.pids().get("trainer" if name == "training process" else name)
        with suppress(psutil.NoSuchProcess):
            if pid is not None:
                process = psutil.Process(pid)
                if name != "training process":
                    return process
                return next((c for c in process.children() if "services.trainer.run" in c.cmdline()), None)
        return None


Inflict = Callable[[Site], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, and is mended after a while.

    Attributes:
        inflict: begins it; leaving the context mends it.
        lasts_s: shortest and longest time between the two, in seconds.
        missing: says what this machine lacks for it; None if it can be inflicted.
    """

    name: str
    inflict: Inflict
    lasts_s: tuple[float, float] = (0.0, 0.0)
    missing: Callable[[Site], str | None] = lambda _: None


def plan(seed: int, seconds: float, chosen: list[Fault], pause_s: tuple[float, float]) -> Iterator[Fault]:
    """Faults for so long: each once in an order of the seed, then each once in another order, and so on."""
    rng, deadline = random.Random(f"faults/{seed}"), time.monotonic() + seconds
    while True:
        for fault in rng.sample(chosen, len(chosen)):
            time.sleep(rng.uniform(*pause_s))
            if time.monotonic() > deadline:
                return
            yield fault


def suffer(fault: Fault, site: Site, seed: int) -> float:
    """Inflict a fault and mend it; returns how long it lasted, in seconds."""
    began = time.monotonic()
    with fault.inflict(site):
        time.sleep(random.Random(seed).uniform(*fault.lasts_s))
    return time.monotonic() - began


def _killed(name: str) -> Fault:
    @contextmanager
    def inflict(site: Site) -> Iterator[None]:
        if (process := site.process(name)) is not None:
            process.kill()
        yield  # the stack starts it again

    return Fault(f"{name} killed", inflict)


def _paused(name: str) -> Fault:
    @contextmanager
    def inflict(site: Site) -> Iterator[None]:
        process = site.process(name)
        if process is not None:
            process.suspend()
        yield
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    return Fault(f"{name} paused", inflict, (3.0, 15.0))


def _needs_small_disk(site: Site) -> str | None:
    return None if site.small_disk else "no disk of its own: a small file system can be mounted as root only"


@contextmanager
def _full_disk(site: Site) -> Iterator[None]:
    ballast = site.home / "ballast"
    with ballast.open("wb") as file, suppress(OSError):
        while True:
            file.write(bytes(_BLOCK))
            file.flush()
    yield
    ballast.unlink()


@contextmanager
def _slow_disk(site: Site) -> Iterator[None]:
    """Every flush to the disk takes longer, in the trainer, its child and Redis."""
    found = (site.process(name) for name in ("trainer", "training process", "redis"))
    pids = [f"--attach={process.pid}" for process in found if process is not None]
    delay = f"inject=fsync,fdatasync:delay_enter={int(_FSYNC_S * 1e6)}"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", delay, *pids]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    yield
    tracer.send_signal(signal.SIGINT)
    tracer.wait()


def _needs_strace(_: Site) -> str | None:
    return None if shutil.which("strace") and os.geteuid() == 0 else "strace is not installed, or not root"


@contextmanager
def _wrong_clock(site: Site) -> Iterator[None]:
    write_file(site.clock, f"{_OFF_S:g}".encode())
    yield
    write_file(site.clock, b"0")


def adjustable_clock(directory: Path) -> tuple[Path, dict[str, str]]:
    """A clock that is off by what a file says: the file, and the environment of a Python with that clock."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    write_file(directory / "offset", b"0")
    return directory / "offset", {"PYTHONPATH": str(directory)}


def _meddling(name: str, meddle: Callable[[redis.Redis, str], object]) -> Fault:
    """Something that is done to the queues again and again."""

    @contextmanager
    def inflict(site: Site) -> Iterator[None]:
        deadline = time.monotonic() + 5.0
        with _client(site) as client:
            while time.monotonic() < deadline:
                with suppress(redis.RedisError):
                    for queue in QUEUES:
                        meddle(client, queue)
                time.sleep(_EVERY_S)
        yield

    return Fault(name, inflict)


def _lose(client: redis.Redis, queue: str) -> None:
    client.rpop(queue)


def _double(client: redis.Redis, queue: str) -> None:
    if (message := client.lindex(queue, -1)) is not None:
        client.lpush(queue, message)


@contextmanager
def _full_redis(site: Site) -> Iterator[None]:
    with _client(site) as client:
        before = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", "1mb")
        yield
        client.config_set("maxmemory", str(before))


@contextmanager
def _damaged_promotion(site: Site) -> Iterator[None]:
    """Somebody promotes a version, and then the disk damages it."""
    policies = site.home / "policies"
    pointer = policies / "promoted.json"
    versions = sorted(path for path in (policies / site.run.name).glob("v*") if path.is_dir())
    if not versions or not pointer.exists():
        yield
        return
    damaged = policies / "damaged" / versions[0].name
    shutil.copytree(versions[0], damaged, dirs_exist_ok=True)
    for file in damaged.glob("*.safetensors"):
        file.write_bytes(b"\0" + file.read_bytes()[1:])
    before = pointer.read_bytes()
    pointer.write_text(json.dumps({"run": "damaged", "id": damaged.name}))
    yield
    pointer.write_bytes(before)


def _rival(name: str, home: Callable[[Site], Path]) -> Fault:
    """A second trainer, which must stand by."""

    @contextmanager
    def inflict(site: Site) -> Iterator[None]:
        directory = home(site)
        directory.mkdir(exist_ok=True)
        rival = site.service("trainer", directory)
        try:
            yield
        finally:
            rival.kill()

    return Fault(name, inflict, (15.0, 30.0))


@contextmanager
def _client(site: Site) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(str(site.stack.redis_url), socket_timeout=5) as client:
        yield client


@contextmanager
def _worker_killed(site: Site) -> Iterator[None]:
    site.worker.kill()
    yield
    site.worker.start_again()


_PROCESSES = ("gateway", "kg_server", "rollout_worker", "trainer", "training process", "redis")

FAULTS = [
    *(_killed(name) for name in _PROCESSES),
    *(_paused(name) for name in _PROCESSES),
    Fault("other worker away", _worker_killed, (1.0, 10.0)),
    Fault("disk full", _full_disk, (3.0, 8.0), _needs_small_disk),
    Fault("disk slow", _slow_disk, (8.0, 15.0), _needs_strace),
    Fault("a worker's clock a minute ahead", _wrong_clock, (10.0, 30.0)),
    _meddling("messages lost", _lose),
    _meddling("messages doubled", _double),
    Fault("redis full", _full_redis, (3.0, 10.0)),
    Fault("promoted version damaged", _damaged_promotion, (5.0, 10.0)),
    _rival("a second trainer of this home", lambda site: site.home),
    _rival("a trainer of another home", lambda site: site.home.parent / "rival"),
]
