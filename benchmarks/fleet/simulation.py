"""Starts a fleet on this machine, offers it load in steps, and reads what each step costs.

The members are processes that one process forks after all imports, so that they share most of their memory.
The queues and the gateways have a real Redis each, which appends, and the service that takes the replies is a
real trainer. Processor time is
counted, not time that passes: other work on the machine changes how much load fits, but not what it costs.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import multiprocessing
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from benchmarks.fleet import members, simulated
from benchmarks.fleet.asking import Callers
from benchmarks.fleet.measurements import Measured, Outcome, Peaks, Plan, Step, Totals
from benchmarks.fleet.rates import Bookkeeping, Replies
from kbqa.policy_store import open_store
from kbqa.recipes import load_recipe
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits, State
from kbqa.wire import QUEUES, ROLLOUTS
from services.access.keys import KeyFile
from services.gateway.access.settings import keys_path
from tests.service import Service
from tests.services.queues import Broker

GROUP = 8
_RUN = "fleet"
_KEYS = 50
_RATE, _QUOTA = "60000/minute", "2000000/day"  # of each key, so that its questions are counted
QUEUES_REDIS, GATEWAYS_REDIS = "Redis of the queues", "Redis of the gateways"
_READY_S, _SETTLE_S, _LOOK_S, _PROBE_S = 600.0, 5.0, 1.0, 10.0
_NEXT_TO_NOTHING_S = 0.01


def simulate(plan: Plan) -> Outcome:
    """Run a fleet through its steps."""
    with tempfile.TemporaryDirectory() as scratch, _running(Path(scratch), plan) as fleet:
        steps = tuple(fleet.measure(step) for step in plan.steps)
        return Outcome(plan, steps, fleet.reply_bytes())


@contextmanager
def _running(home: Path, plan: Plan) -> Iterator[_Fleet]:
    (home / "logs").mkdir()
    recipe = load_recipe(
        "kg-r1",
        {
            "rollout.n": GROUP,
            "rollout.max_turns": simulated.TURNS,
            "schedule.max_staleness": 100,
            "schedule.max_in_flight": plan.in_flight,
            "schedule.questions_per_step": plan.per_step,
            "schedule.checkpoint_every": 5,
        },
    )
    tokenizer, store = simulated.make_tokenizer(recipe), open_store(home)
    first = simulated.publish(store, _RUN, 1, recipe, tokenizer)
    store.promote(_RUN, first.id)
    run = Runs(home / "runs").create(recipe, "fleet", SplitLimits(), 1, _RUN)
    run.write(run.read().model_copy(update={"state": State.STOPPED}))
    file = KeyFile(keys_path(home))
    keys = [file.create(f"caller {number}", rate=_RATE, quota=_QUOTA)[1] for number in range(_KEYS)]
    context = multiprocessing.get_context("fork")
    shared = members.Shared(
        context.Value("d", 1.0),
        context.Value("d", 0.25),
        context.Event(),
        context.Value("Q", 0),
        context.Value("Q", 0),
        context.Array("Q", len(simulated.OPERATIONS)),
    )
    with ExitStack() as closing:
        servers = {name: _redis(home / name, closing) for name in (QUEUES_REDIS, GATEWAYS_REDIS)}
        broker, counts = servers.values()
        trainer = Service("trainer", home, {"KBQA_BROKER_URL": broker.url})
        closing.callback(trainer.kill)
        ports = _free_ports(plan.workers + 2 * plan.gateways)
        simulated.count_operations(shared.operations)
        gc.collect()
        gc.freeze()  # a collection in a child would copy what it looks at
        started: dict[str, list[ForkProcess]] = {"workers": [], "gateways": [], "training": []}

        def start(kind: str, body: Callable[..., None], *arguments: Any) -> None:
            process = context.Process(target=body, args=(*arguments, shared), daemon=True)
            process.start()
            started[kind].append(process)
            closing.callback(process.kill)

        start("training", members.train, home, broker.url, run, tokenizer)
        worker_ports = [next(ports) for _ in range(plan.workers)]
        for port in worker_ports:
            start("workers", members.work, home, broker.url, port, plan.concurrency)
        gateway_ports = [(next(ports), next(ports)) for _ in range(plan.gateways)]
        for port, operations_port in gateway_ports:
            start("gateways", members.serve_answers, home, counts.url, port, operations_port)
        probed = [*worker_ports, *(port for port, _ in gateway_ports), trainer.port]
        pids = {kind: [process.pid or 0 for process in found] for kind, found in started.items()}
        pids["trainer"] = [trainer.process.pid]
        urls = [f"http://127.0.0.1:{port}" for port, _ in gateway_ports]
        clients = {name: redis.Redis.from_url(server.url) for name, server in servers.items()}
        everywhere, alone = Callers(urls, keys), Callers(urls[:1], keys)

        def book(per_second: float, seconds: float) -> int:
            document = everywhere.document or alone.document
            assert document is not None, "questions come before"
            owners = [record.id for record in file.read()]
            books = Bookkeeping(counts.url, plan.gateways, document, _RATE, _QUOTA, owners)
            return asyncio.run(books.keep(per_second, seconds))

        aside = Runs(home / "runs").create(recipe, "fleet", SplitLimits(), 1, f"{_RUN}-aside")
        aside.write(aside.read().model_copy(update={"state": State.STOPPED}))
        fleet = _Fleet(
            clients, pids, probed, everywhere, alone, shared, run, book, Replies(broker.url, aside)
        )
        fleet.wait_ready()
        with fleet.watching():
            yield fleet


def _redis(directory: Path, closing: ExitStack) -> Broker:
    directory.mkdir()
    limits = ("--maxmemory", "256mb", "--maxmemory-policy", "noeviction", "--appendfsync", "everysec")
    server = Broker(directory, *limits)
    closing.callback(server.kill)
    return server


class _Fleet:
    def __init__(
        self,
        servers: Mapping[str, redis.Redis],
        pids: Mapping[str, Sequence[int]],
        probed: Sequence[int],
        callers: Callers,
        single: Callers,
        shared: members.Shared,
        run: RunDirectory,
        book: Callable[[float, float], int],
        intake: Replies,
    ) -> None:
        self._servers, self._queues = servers, servers[QUEUES_REDIS]
        self._http = httpx.Client(timeout=10, verify=False)  # reading certificates takes long
        self._members = {kind: [psutil.Process(pid) for pid in found] for kind, found in pids.items()}
        self._probed, self._callers, self._single = probed, callers, single
        self._shared, self._run, self._book, self._intake = shared, run, book, intake
        self._peaks = Peaks()
        self._replies: dict[str, int] = {}  # size of each that lay on the trainer's disk, by file name
        self._sample = ""  # one of them, as it came
        self._ending = threading.Event()

    def wait_ready(self) -> None:
        """Wait until every member can work.

        Raises:
            RuntimeError: one is not ready in time.
        """
        deadline = time.monotonic() + _READY_S
        waiting = list(self._probed)
        while waiting:
            waiting = [port for port in waiting if not self._is_ready(port)]
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(waiting)} members are not ready: look into the logs of their home")
            time.sleep(0.5)

    def measure(self, step: Step) -> Measured:
        """Offer a load, and read what it costs once it is steady."""
        shared = self._shared
        shared.answer_s.value = step.answer_s
        if step.turn_s is not None:
            shared.turn_s.value = step.turn_s
            shared.training.set()
            self._wait_for_groups()
            time.sleep(simulated.TURNS * step.turn_s)
        if step.is_partial:
            self._let_workers_end()
        time.sleep(_SETTLE_S)
        for callers in (self._callers, self._single):
            callers.ends.clear()
        self._peaks = peaks = Peaks()
        messages = self._intake.prepare(self._sample, round(step.replies * step.seconds))
        before, booked = self._read(), 0
        if step.at_a_time:
            asyncio.run(self._single.press(step.at_a_time, step.seconds))
        elif step.questions:
            asyncio.run(self._callers.ask(step.questions, step.seconds))
        elif step.booked:
            booked = self._book(step.booked, step.seconds)
        elif step.replies:
            self._intake.send(messages, step.replies)
        else:
            time.sleep(step.seconds)
        totals = self._read() - before
        self._peaks = Peaks()
        if step.turn_s is not None:
            shared.training.clear()
        ends = self._callers.ends + self._single.ends + Counter(booked=booked)
        return Measured(step, replace(totals, groups=totals.groups + len(messages)), peaks, ends)

    def _let_workers_end(self) -> None:
        """Take their requests away, and wait until nothing else happens in the fleet.

        Raises:
            RuntimeError: it takes too long.
        """
        self._shared.turn_s.value = _NEXT_TO_NOTHING_S
        self._queues.delete(ROLLOUTS)
        deadline = time.monotonic() + _READY_S
        while any(self._queues.exists(f"{queue}.unacked") for queue in QUEUES):
            if time.monotonic() > deadline:
                raise RuntimeError("requests or replies are still in progress: look into the fleet's logs")
            time.sleep(0.2)

    def _wait_for_groups(self) -> None:
        """Wait until an optimiser step has its groups.

        Raises:
            RuntimeError: it takes too long.
        """
        before, deadline = self._shared.groups.value, time.monotonic() + _READY_S
        while self._shared.groups.value == before:
            if time.monotonic() > deadline:
                raise RuntimeError("no optimiser step came about: look into the logs of the fleet's home")
            time.sleep(0.2)

    def reply_bytes(self) -> float:
        return sum(self._replies.values()) / max(1, len(self._replies))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note peaks and probe all members, as Kubernetes does, while the block runs."""
        threads = [threading.Thread(target=work, daemon=True) for work in (self._watch, self._probe)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ending.set()
            for thread in threads:
                thread.join()
            for server in self._servers.values():
                server.close()
            self._http.close()

    def _is_ready(self, port: int) -> bool:
        with suppress(httpx.HTTPError):
            return self._http.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        return False

    def _watch(self) -> None:
        (trainer,) = self._members["trainer"]
        while not self._ending.wait(_LOOK_S):
            peaks = self._peaks
            for name, server in self._servers.items():
                peaks.clients[name] = max(peaks.clients[name], server.info("clients")["connected_clients"])
            peaks.files = max(peaks.files, trainer.num_fds())
            for path in (self._run.path / "inbox").glob("*.json"):
                with suppress(FileNotFoundError):  # the training process has taken it
                    self._replies[path.name] = path.stat().st_size
                    self._sample = self._sample or path.read_text()
            for queue in QUEUES:
                length = self._queues.llen(queue)
                peaks.queued[queue] = max(peaks.queued[queue], length)
                if length and (size := self._queues.memory_usage(queue, samples=0)):
                    peaks.message[queue] = max(peaks.message[queue], size // length)

    def _probe(self) -> None:
        pause_s = _PROBE_S / len(self._probed)
        for port in itertools.cycle(self._probed):
            if self._ending.wait(pause_s):
                return
            self._is_ready(port)

    def _read(self) -> Totals:
        infos = {name: server.info() for name, server in self._servers.items()}
        counts = self._servers[GATEWAYS_REDIS]
        cpu_s = {
            kind: sum(_cpu_s(process) for process in processes) for kind, processes in self._members.items()
        }
        cpu_s |= {name: info["used_cpu_user"] + info["used_cpu_sys"] for name, info in infos.items()}
        return Totals(
            time.monotonic(),
            cpu_s,
            {name: info["total_commands_processed"] for name, info in infos.items()},
            {
                name: info["total_net_input_bytes"] + info["total_net_output_bytes"]
                for name, info in infos.items()
            },
            self._shared.groups.value,
            self._shared.versions.value,
            simulated.operations(self._shared.operations),
            sum(counts.memory_usage(key) or 0 for key in counts.scan_iter("kbqa:counts*", 1000)),
        )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _free_ports(count: int) -> Iterator[int]:
    with ExitStack() as held:
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        ports = [listener.getsockname()[1] for listener in listeners]
    return iter(ports)
