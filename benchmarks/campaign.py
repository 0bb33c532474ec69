"""python -m benchmarks.campaign MINUTES [SEED]: a training run during which everything goes wrong.

Every service runs as it does under `kbqa up`, with a second worker; a small policy is trained, and users ask
the gateway all the time. Faults (`benchmarks.faults`) follow each other by a seed. At the end the run must be
done with its summary, and the report says whether it kept its promises:

- every group that was asked for is settled once, and no message is a dead letter;
- every question got an answer or an error that names its type, unless the gateway itself was killed;
- no damaged version answered;
- memory, open files, disk, keys and messages did not grow.

As root the home is a small file system of its own, which can be full.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from benchmarks.faults import FAULTS, Site, adjustable_clock, plan, suffer
from benchmarks.growth import Sample, of_process, of_redis, verdict
from kbqa.datasets import load_dataset
from kbqa.kg.catalog import GraphCatalog
from kbqa.wire import QUEUES
from services.broker import create_celery, require_broker
from services.cli.supervisor import Stack
from services.dead_letters import DeadLetters
from tests.ledgers import read_ledger
from tests.service import Service
from tests.services.invariant import assert_every_group_occurs_once

_DISK_MB = 512
_EVERY_S = 5.0
_SETTLED_S = 60.0  # after its start, before which the memory of a process says nothing
_PAUSE_S = (4.0, 10.0)  # between two faults
_PREPARATION_S = 120.0  # until reinforcement begins, and with it the faults
_PATIENCE_S = 900.0
_DYING_S = 0.3  # from the end of a killed process's connections to its own end, at most
_ASKERS = 2
_QUESTIONS_PER_STEP = 4
_RECIPE: dict[str, object] = {
    "protocol.entities": "names",
    "rollout.n": 4,
    "rollout.max_turns": 3,
    "rollout.max_tokens": 224,
    "rollout.max_turn_tokens": 40,
    "rollout.max_observation_tokens": 48,
    # So that most groups have spread, and each step changes the weights.
    "reward.w_format": 0.5,
    "reward.w_query": 0.5,
    "reward.w_answer": 0.5,
    "reward.w_retrieval": 1.0,
    "advantage.kind": "turn",
    "small_policy.vocabulary": 500,
    "small_policy.layers": 1,
    "small_policy.width": 32,
    "small_policy.heads": 2,
    "small_policy.feed_forward": 64,
    "small_policy.max_length": 256,
    "small_policy.warm_up.steps": 5,
    "small_policy.warm_up.batch_tokens": 256,
    "small_policy.warm_up.learning_rate": 3e-3,
    "cold_start.demonstrations": 30,
    "cold_start.steps": 60,
    "cold_start.validate_every": 60,
    "schedule.steps": 1_000_000,
    "schedule.questions_per_step": _QUESTIONS_PER_STEP,
    "schedule.max_in_flight": 8,
    "schedule.request_deadline_s": 10,
    "schedule.checkpoint_every": 5,
    "schedule.validate_every": 1_000_000,
}


@dataclass
class Findings:
    """What was seen.

    Attributes:
        suffered: each fault with the step at which it began and the seconds that it lasted.
        skipped: faults that could not be inflicted, with the reason.
        ends: questions by how they ended.
        unanswered: those that got no answer while the gateway lived.
        versions: versions that answered.
        resumed: times that the run had failed and was resumed by hand, with the reason.
        broken: promises that were not kept.
    """

    suffered: list[tuple[str, int, float]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    unanswered: list[str] = field(default_factory=list)
    versions: Counter[str] = field(default_factory=Counter)
    resumed: list[str] = field(default_factory=list)
    samples: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    outcomes: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    steps: int = 0
    broken: list[str] = field(default_factory=list)


def main(minutes: float, seed: int) -> int:
    """Returns 1 if a promise was broken."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing stays mounted
    signal.signal(signal.SIGINT, signal.default_int_handler)
    findings, began = Findings(), time.monotonic()
    with ExitStack() as closing:
        scratch = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        home, small_disk = closing.enter_context(_disk(scratch))
        catalog = GraphCatalog(home)
        catalog.load("world", load_dataset("world", seed=seed).graph.as_file(home))
        catalog.close()
        _run(home, small_disk, minutes, seed, findings)
    sys.stdout.write(_report(minutes, seed, time.monotonic() - began, findings))
    return 1 if findings.broken else 0


@contextmanager
def _disk(scratch: Path) -> Iterator[tuple[Path, bool]]:
    """A directory for the home, and whether it has a file system of its own."""
    home = scratch / "home"
    home.mkdir()
    size = f"size={_DISK_MB}m"
    mounted = os.geteuid() == 0 and not subprocess.call(["mount", "-t", "tmpfs", "-o", size, "tmpfs", home])
    try:
        yield home, mounted
    finally:
        if mounted:
            subprocess.call(["umount", "--lazy", home])


def _run(home: Path, small_disk: bool, minutes: float, seed: int, findings: Findings) -> None:
    environment = {
        "KBQA_TRAINER_THREADS": "1",
        "KBQA_TRAINER_MAX_RESTARTS": "1000",  # in a row without a step forward: here they are murders
        "KBQA_GATEWAY_READER": "false",
        "KBQA_GATEWAY_ANSWERS_KEPT": "50",  # in Redis, so that they are at their most before it is over
    }
    with Stack(home, free_ports=True, environment=environment) as stack, ExitStack() as closing:
        stack.wait_ready(_PATIENCE_S)
        shared = {"KBQA_REDIS_URL": str(stack.redis_url), "KBQA_KG_SERVER_URL": stack.urls["kg_server"]}
        clock, its_clock = adjustable_clock(home.parent / "clock")
        worker = Service("rollout_worker", home, shared | its_clock)
        closing.callback(worker.kill)
        run = _begin(stack, minutes, seed)
        site = Site(
            stack,
            home,
            run,
            small_disk,
            worker,
            clock,
            lambda name, at: Service(name, at, shared | environment),
        )
        _wait(lambda: _learns(run), run)
        version = httpx.post(f"{stack.urls['trainer']}/v1/runs/{run.name}/promote", timeout=60)
        version.raise_for_status()
        over = threading.Event()
        watchers = [threading.Thread(target=_ask, args=(site, seed, over, findings)) for _ in range(_ASKERS)]
        watchers.append(threading.Thread(target=_sample, args=(site, over, findings)))
        for watcher in watchers:
            watcher.start()
        try:
            _inflict(site, minutes, seed, findings)
            _wait(lambda: _state(site, findings) == "done", run)
        finally:
            over.set()
            for watcher in watchers:
                watcher.join()
        _judge(site, findings)


def _begin(stack: Stack, minutes: float, seed: int) -> Path:
    body = {
        "dataset": "world",
        "recipe": "kg-r1-small",
        "overrides": _RECIPE | {"schedule.max_run_seconds": _PREPARATION_S + 60 * minutes},
        "limits": {"validation": 2, "test": 8},
        "seed": seed,
    }
    response = httpx.post(f"{stack.urls['trainer']}/v1/runs", json=body, timeout=_PATIENCE_S)
    if response.status_code != 201:
        raise SystemExit(response.text)
    return stack.home / "runs" / str(response.json()["id"])


def _inflict(site: Site, minutes: float, seed: int, findings: Findings) -> None:
    for fault in FAULTS:
        if (reason := fault.missing(site)) is not None:
            findings.skipped[fault.name] = reason
    chosen = [fault for fault in FAULTS if fault.name not in findings.skipped]
    for number, fault in enumerate(plan(seed, 60 * minutes, chosen, _PAUSE_S)):
        if _state(site, findings) == "done":
            return
        step = _progress(site.run)[1]
        findings.suffered.append((fault.name, step, suffer(fault, site, seed + number)))


def _state(site: Site, findings: Findings) -> str:
    """State of the run. One that failed, as on a full disk, is resumed, as an operator would do."""
    record = _json(site.run / "run.json")
    if record.get("state") == "failed":
        with suppress(httpx.HTTPError):
            url = f"{site.stack.urls['trainer']}/v1/runs/{site.run.name}/resume"
            if httpx.post(url, timeout=60).status_code == 200:
                findings.resumed.append(str(record["error"]))
    return str(record.get("state"))


def _learns(run: Path) -> bool:
    """Whether reinforcement has begun; a run that failed before it will never begin."""
    if (error := _json(run / "progress.json").get("error")) is not None:
        raise SystemExit(f"the run failed before the first fault: {error}")
    return _progress(run)[0] == "rl"


def _progress(run: Path) -> tuple[str, int]:
    progress = _json(run / "progress.json")
    return str(progress.get("phase")), int(progress.get("step", 0))


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return dict(json.loads(path.read_bytes()))
    return {}


def _wait(reached: Any, run: Path) -> None:
    """Wait until something is reached, for as long as the run makes progress."""
    seen, deadline = _progress(run), time.monotonic() + _PATIENCE_S
    while not reached():
        if (now := _progress(run)) != seen:
            seen, deadline = now, time.monotonic() + _PATIENCE_S
        elif time.monotonic() > deadline:
            raise SystemExit(f"waited in vain: {_json(run / 'run.json')} {_json(run / 'progress.json')}")
        time.sleep(1)


def _ask(site: Site, seed: int, over: threading.Event, findings: Findings) -> None:
    """Ask the gateway until it is over."""
    questions = load_dataset("world", seed=seed).splits.test
    url = f"{site.stack.urls['gateway']}/v1/answer"
    answering: int | None = None  # the process that answered last; a new one takes a while to listen
    while not over.wait(0.2):
        question = questions[findings.ends.total() % len(questions)]
        try:
            body = {"question": question.text, "kg": "world", "timeout_s": 20}
            response = httpx.post(url, json=body, timeout=60)
            document = response.json()
        except (httpx.HTTPError, ValueError) as error:
            findings.ends[type(error).__name__] += 1
            over.wait(_DYING_S)
            if answering is not None and answering == site.stack.pids().get("gateway"):
                findings.unanswered.append(f"{type(error).__name__} at step {_progress(site.run)[1]}")
            continue
        answering = site.stack.pids().get("gateway")
        if response.status_code == 200:
            findings.ends[f"answered ({document['status']})"] += 1
            findings.versions[f"{document['policy']}/{document['policy_version']}"] += 1
        else:
            findings.ends[f"{response.status_code} {document.get('type', 'without a type')}"] += 1


def _sample(site: Site, over: threading.Event, findings: Findings) -> None:
    while not over.wait(_EVERY_S):
        with suppress(psutil.Error, redis.RedisError, OSError):
            for (name, kind), value in _measure(site):
                findings.samples[name, kind].append(value)


def _measure(site: Site) -> Iterator[Sample]:
    for name in (*site.stack.pids(), "training process"):
        process = site.process(name)
        if process is not None and time.time() - process.create_time() > _SETTLED_S:
            yield from of_process(name, process)
    yield ("home", "disk"), sum(p.stat().st_size for p in site.home.rglob("*") if p.is_file()) / 2**20
    yield from of_redis(str(site.stack.redis_url))


def _judge(site: Site, findings: Findings) -> None:
    """Whether the promises were kept."""
    broken, run = findings.broken, site.run
    findings.steps = _progress(run)[1]
    findings.restarts = int(_json(run / "run.json").get("restarts", 0))
    if not (run / "summary.json").exists():
        broken.append("the run has no summary")
    try:
        view = {"step": max(step for _, step in read_ledger(run)["settled"].values())}
        findings.outcomes += Counter(assert_every_group_occurs_once(run, view, _QUESTIONS_PER_STEP))
    except AssertionError as error:
        broken.append(f"a group does not occur once: {error}")
    broken += [f"a question got no answer: {one}" for one in findings.unanswered]
    broken += [f"untyped error: {end}" for end in findings.ends if end.endswith("without a type")]
    broken += [
        f"a damaged version answered: {one}" for one in findings.versions if one.startswith("damaged/")
    ]
    for queue in QUEUES:
        celery = create_celery("campaign", str(site.stack.redis_url), consumes=queue)
        require_broker(celery, wait_s=30)
        letters = DeadLetters(celery, queue).read()
        broken += [f"dead letter in {queue}: {letter.reason}" for letter in letters]
        celery.close()
    broken += [f"{what} grows" for what in verdict(findings.samples)[1]]


def _report(minutes: float, seed: int, seconds: float, findings: Findings) -> str:
    """The report, in Markdown."""
    times: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for name, step, lasted in findings.suffered:
        times[name].append((step, lasted))
    lines = [
        f"Fault campaign of {minutes:g} minutes, seed {seed} ({seconds:.0f} s in all): "
        f"{len(findings.suffered)} faults, {findings.steps} steps, {findings.restarts} restarts of the "
        f"training process, {len(findings.resumed)} resumed by hand.",
        "",
        "| fault | times | at step | lasted (s) |",
        "|---|---|---|---|",
        *(
            f"| {name} | {len(seen)} | {', '.join(str(step) for step, _ in seen)} "
            f"| {', '.join(f'{lasted:.0f}' for _, lasted in seen)} |"
            for name, seen in times.items()
        ),
        *(f"| {name} | not inflicted: {reason} | | |" for name, reason in findings.skipped.items()),
        "",
        f"- Groups: {dict(findings.outcomes)}",
        f"- Questions: {dict(findings.ends)}",
        *(f"- Resumed after: {reason}" for reason in findings.resumed),
        *(f"- **Broken**: {what}" for what in findings.broken),
        *([] if findings.broken else ["- Every promise was kept."]),
        "",
        "```",
        *verdict(findings.samples)[0],
        "```",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(float(arguments[0]) if arguments else 60, int(arguments[1]) if len(arguments) > 1 else 1))
