"""Questions to a gateway with a policy that chooses: how long one takes, and how many a second it answers."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.load import drive, why_no_wrk
from kbqa.datasets import Dataset, load_dataset
from kbqa.kg.catalog import GraphCatalog
from kbqa.policies.chooser.model import Chooser
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.runs.student import Student
from kbqa.trajectory import Segment
from services.cli.supervisor import Stack

_SECONDS, _CLIENTS = 20, 32
_READY_S = 120.0
_ASKED = 100  # questions that the encoder alone is timed on


def measure() -> list[str]:
    """Lines of a report. The policy is untrained: it reads and walks as a trained one does."""
    if (reason := why_no_wrk()) is not None:
        return [f"answer: {reason}"]
    dataset = load_dataset("world", seed=1)
    with tempfile.TemporaryDirectory(prefix="kbqa-answer-") as directory:
        home = Path(directory)
        student = _prepare(home, dataset)
        alone_ms = _encoder_alone_ms(student, dataset)
        # What was asked before is encoded already, so each load has questions of its own.
        first, second, third = (_bodies(home, dataset, part) for part in range(3))
        open_door = {"KBQA_GATEWAY_REQUIRE_KEYS": "false"}
        with Stack(home, services=("kg_server", "gateway"), free_ports=True, environment=open_door) as stack:
            stack.wait_ready(_READY_S)
            url = f"{stack.urls['gateway']}/v1/answer"
            # Answers that are kept would be all that is measured.
            drive(url, first, clients=4, seconds=5, cache_control="no-cache")
            one = drive(url, second, clients=1, seconds=_SECONDS, cache_control="no-cache")
            many = drive(url, third, clients=_CLIENTS, seconds=_SECONDS, cache_control="no-cache")
    return [
        f"answer: one client p50 {one.p50_ms:.0f} ms, p99 {one.p99_ms:.0f} ms (target: p50 40 ms); "
        f"{_CLIENTS} clients {many.per_second:.0f} questions/s, p50 {many.p50_ms:.0f} ms (target: 50/s)",
        f"  the encoder alone, one question after the other on one thread: {alone_ms:.1f} ms a question; "
        f"ratio {one.p50_ms / alone_ms:.1f}",
    ]


def _prepare(home: Path, dataset: Dataset) -> Student:
    """The graph, and a policy that is promoted."""
    catalog = GraphCatalog(home)
    catalog.load(dataset.graph.name, dataset.graph.as_file(home))
    catalog.close()
    recipe = load_recipe("kg-r1-chooser")
    assert recipe.base_model is not None
    student = Student.pretrained(recipe.base_model, recipe.protocol.build().tags, seed=1)
    store = PolicyStore(home / "policies")
    version = store.publish(
        "answer",
        1,
        student.save,
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=recipe.digest(),
        step=0,
        metrics={},
        base_model=recipe.base_model,
        probe=student.probe(),
    )
    store.promote("answer", version.id)
    return student


def _bodies(home: Path, dataset: Dataset, part: int) -> Path:
    """A third of the training questions, as bodies of requests."""
    file = home / f"bodies-{part}"
    asked = [
        json.dumps({"question": question.text, "kg": question.kg})
        for question in dataset.splits.train[part::3]
    ]
    file.write_text("".join(f"{body}\n" for body in asked), encoding="utf-8")
    return file


def _encoder_alone_ms(student: Student, dataset: Dataset) -> float:
    """Milliseconds that the encoder takes for a question; the median."""
    assert isinstance(student.model, Chooser)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times = []
    try:
        with torch.inference_mode():
            for question in dataset.splits.train[:_ASKED]:
                ids = tuple(student.codec.encode([Segment(question.text, trusted=False)]))
                began = time.perf_counter()
                student.model.tokens([ids])
                times.append((time.perf_counter() - began) * 1000)
    finally:
        torch.set_num_threads(threads)
    return statistics.median(times)
