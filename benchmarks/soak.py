"""python -m benchmarks.soak MINUTES: a training run that goes on and on, and a watch for what grows.

Every service runs as it does under `kbqa up`, with a Redis that appends. A small policy that has
been cold-started for a minute gets an adapter, which trains and is published at each step, and the
worker loads each version into a real vLLM server. Where there is no vLLM all weights train, and
two workers load them into their own processes. Every few seconds the resident memory and the open
files of each process are noted, what lies in Redis, and the adapters that vLLM holds. After the
first third, by when caches are full, none of them may rise steadily: see `growth.verdict`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from benchmarks.growth import Sample, of_process, of_redis, verdict
from kbqa.datasets import load_dataset
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import PolicyStore
from services.cli.supervisor import Stack
from tests.vllm_server import Vllm

_EVERY_S = 5.0
_READY_S = 300.0
_SERVICES = ("kg_server", "rollout_worker", "trainer")
# Everything that kg-r1-small does; what comes before the reinforcement is cut short.
_SHORT: dict[str, object] = {
    "cold_start.steps": 300,
    "cold_start.validate_every": 300,
    "schedule.validate_every": 200,
}
_FOR_EVER: dict[str, object] = {
    "schedule.steps": 1_000_000,
    "schedule.max_run_seconds": None,
    "schedule.validate_every": 200,
    "schedule.questions_per_step": 2,  # small steps: what may leak does so at each new version
    "schedule.max_in_flight": 8,
}
_ADAPTER: dict[str, object] = {
    "small_policy": None,
    "cold_start": None,
    "optimisation.lora": {"rank": 8, "alpha": 16},
}
_VLLM_OPTIONS = ("--max-num-seqs", "64", "--enable-lora", "--max-loras", "4", "--max-lora-rank", "8")


def main(minutes: float) -> int:
    """Returns 1 if anything grew."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        _load_world(home)
        with _adapters(home) if Vllm.missing() is None else _whole_weights(home) as (stack, run, vllm):
            samples = defaultdict[tuple[str, str], list[float]](list)
            first = _until_reinforcement(home / "runs" / run)
            deadline = time.monotonic() + 60 * minutes
            while time.monotonic() < deadline:
                for key, value in _measure(stack, vllm):
                    samples[key].append(value)
                time.sleep(_EVERY_S)
            steps = _steps(home / "runs" / run) - first
        lines, growing = verdict(samples)
    what = f"soak of {minutes:g} minutes, " + (Vllm.missing() or "adapters in vLLM")
    lines = [f"{what}: {steps} steps, each with a new policy version", *lines]
    lines += [f"growing: {', '.join(growing)}" if growing else "nothing grows"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if growing else 0


@contextmanager
def _whole_weights(home: Path) -> Iterator[tuple[Stack, str, None]]:
    with Stack(home, services=_SERVICES, rollout_workers=2, free_ports=True) as stack:
        stack.wait_ready(_READY_S)
        yield stack, _begin(stack, _SHORT | _FOR_EVER), None


@contextmanager
def _adapters(home: Path) -> Iterator[tuple[Stack, str, Vllm]]:
    base = _cold_started(home)
    vllm = Vllm(base, home / "vllm.log", options=_VLLM_OPTIONS).ready()
    environment = {
        "KBQA_ENGINE": "vllm",
        "KBQA_VLLM_URL": vllm.url,
        "KBQA_ROLLOUT_WORKER_VLLM_PRECISION": "float32",
        "KBQA_TRAINER_RECIPE_DIRECTORIES": str(base),
    }
    try:
        with Stack(home, services=_SERVICES, free_ports=True, environment=environment) as stack:
            stack.wait_ready(_READY_S)
            yield stack, _begin(stack, _FOR_EVER | _ADAPTER | {"base_model": str(base)}), vllm
    finally:
        vllm.kill()


def _cold_started(home: Path) -> Path:
    """Directory of a policy that answers some questions, so that groups have spread."""
    with Stack(home, services=_SERVICES, free_ports=True) as stack:
        stack.wait_ready(_READY_S)
        run = _begin(stack, _SHORT | {"schedule.steps": 1})
        record = home / "runs" / run / "run.json"
        while (state := json.loads(record.read_text()))["state"] == "running":
            time.sleep(1)
    if state["state"] != "done":
        raise SystemExit(f"the run is {state['state']}: {state['error']}")
    summary = json.loads(record.with_name("summary.json").read_text())
    return PolicyStore(home / "policies").get(run, summary["policy"]).path


def _load_world(home: Path) -> None:
    catalog = GraphCatalog(home)
    catalog.load("world", load_dataset("world", seed=1).graph.as_file(home))
    catalog.close()


def _begin(stack: Stack, overrides: Mapping[str, object]) -> str:
    body = {
        "dataset": "world",
        "recipe": "kg-r1-small",
        "overrides": overrides,
        "limits": {"validation": 8, "test": 8},
        "seed": 1,
    }
    response = httpx.post(f"{stack.urls['trainer']}/v1/runs", json=body, timeout=60)
    response.raise_for_status()
    return str(response.json()["id"])


def _until_reinforcement(directory: Path) -> int:
    """Wait until reinforcement has begun; returns its steps so far."""
    while (steps := _steps(directory)) < 1:
        state = json.loads((directory / "run.json").read_text())
        if state["state"] != "running":
            raise SystemExit(f"the run is {state['state']}: {state['error']}")
        time.sleep(1)
    return steps


def _steps(directory: Path) -> int:
    path = directory / "progress.json"
    progress = json.loads(path.read_text()) if path.exists() else {}
    return int(progress["step"]) if progress.get("phase") == "rl" else 0


def _measure(stack: Stack, vllm: Vllm | None) -> Iterator[Sample]:
    for name, pid in stack.pids().items():
        process = psutil.Process(pid)
        yield from of_process(name, process)
        for child in process.children():
            if "services.trainer.run" in child.cmdline():
                yield from of_process("training process", child)
    if vllm is not None:
        for process in (own := psutil.Process(vllm.process.pid), *own.children(recursive=True)):
            yield from of_process(f"vllm {process.name()}", process)
        models = httpx.get(f"{vllm.url}/v1/models", timeout=60).json()["data"]
        yield ("vllm", "adapters"), len(models) - 1  # the first is their base
    assert stack.redis_url is not None
    yield from of_redis(stack.redis_url)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 30))
