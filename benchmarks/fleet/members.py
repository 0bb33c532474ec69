"""The members of a fleet, each the body of a process: the project's own code but for engine and graph.

A worker and a gateway are wired as `python -m services.…` wires them. The training process paces, keeps the
books and publishes as reinforcement learning does; its optimiser step takes no time.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Event as Stop

from prometheus_client import CollectorRegistry
from tokenizers import Tokenizer

from benchmarks.fleet.simulated import GRAPH, Graph, Host, publish
from kbqa.curricula.course import Questions
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyVersion
from kbqa.policy_store.durable import write_file
from kbqa.recipes import Recipe
from kbqa.runs.context import EVALUATED_AT_A_TIME, Context
from kbqa.runs.directory import RunDirectory
from kbqa.runs.journal import Journal
from kbqa.runs.ledger import GroupOutcome
from kbqa.runs.pacing import Pacing
from kbqa.runs.queued import QueuedSource
from kbqa.runs.transcripts import trace
from kbqa.telemetry.logs import configure_logging
from kbqa.telemetry.metrics import Metrics
from kbqa.trajectory import Question
from kbqa.wire import ROLL_OUT_TASK, ROLLOUTS, Purpose, RolloutRequest, encode
from services.broker import Outbox, create_celery
from services.gateway.app import create_app
from services.gateway.collector import look_seldom
from services.gateway.settings import GatewaySettings
from services.gateway.sources import followed
from services.http import serve
from services.rollout_worker.settings import RolloutWorkerSettings
from services.rollout_worker.worker import run_worker
from services.trainer.settings import TrainerSettings


@dataclass(frozen=True)
class Shared:
    """What the processes of a fleet share, besides the files of their home.

    Attributes:
        turn_s: mean time of a worker's completion; `answer_s` of a gateway's.
        training: set while the training process works.
        groups, versions: how many were settled, and published.
        operations: of the policy store; see `simulated.count_operations`.
    """

    turn_s: Synchronized[float]
    answer_s: Synchronized[float]
    training: Event
    groups: Synchronized[int]
    versions: Synchronized[int]
    operations: SynchronizedArray[int]


def log_to(path: Path, service: str) -> None:
    """Let this process write to a log of its own."""
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    configure_logging(service, "INFO", "json")


def work(home: Path, broker_url: str, port: int, concurrency: int, shared: Shared) -> None:
    """A rollout worker."""
    log_to(home / "logs" / f"worker-{port}.log", "rollout_worker")
    settings = RolloutWorkerSettings.load(
        home=home, broker_url=broker_url, port=port, concurrency=concurrency
    )
    run_worker(settings, Host(shared.turn_s), Graph())


def serve_answers(home: Path, redis_url: str, port: int, operations_port: int, shared: Shared) -> None:
    """A gateway, which requires keys."""
    log_to(home / "logs" / f"gateway-{port}.log", "gateway")
    settings = GatewaySettings.load(
        home=home,
        redis_url=redis_url,
        port=port,
        operations_port=operations_port,
        require_keys=True,
        reader=False,
        min_confidence=0.0,
        redis_timeout_s=10.0,  # a busy machine must not turn shared counts into local ones
    )
    policies = followed(
        settings, Metrics(CollectorRegistry()), settings.policies().promoted, Host(shared.answer_s)
    )
    app = create_app(settings, policies, Graph())
    look_seldom()
    operations = app.state.operations
    serve(app, settings.host, port, beside=(operations, operations_port))


class _Deck:
    """A question of its own at every position."""

    def __getitem__(self, position: int, /) -> Question:
        return Question(f"q{position}", f"Who directed number {position}?", ("found 1",), ("Topic",), GRAPH)


def train(home: Path, broker_url: str, run: RunDirectory, tokenizer: Tokenizer, shared: Shared) -> None:
    """The training process of a run, which goes on for ever."""
    log_to(home / "logs" / "training.log", "trainer")
    settings = TrainerSettings.load(home=home, broker_url=broker_url)
    record = run.read()
    recipe, store = record.resolved_recipe(), settings.policies()
    schedule = recipe.schedule
    celery = create_celery("trainer", broker_url)
    at_most = 3 * max(schedule.max_in_flight, EVALUATED_AT_A_TIME)
    outbox = Outbox(celery, ROLLOUTS, ROLL_OUT_TASK, at_most=at_most)

    def send_request(request: RolloutRequest) -> None:
        outbox.send(encode(request))

    context = Context(
        directory=run,
        record=record,
        recipe=recipe,
        store=store,
        tools=Graph(),
        journal=Journal(run),
        rollouts=QueuedSource(send_request, run.inbox),
        stop=Stop(),
        home=home,
    )
    shared.training.wait()
    version = store.newest(record.id)
    assert version is not None
    _Training(context, version, tokenizer, _Deck(), shared).run()


class _Training:
    """Steps of reinforcement learning without the learning."""

    def __init__(
        self, context: Context, version: PolicyVersion, tokenizer: Tokenizer, deck: Questions, shared: Shared
    ) -> None:
        self._context, self._version, self._tokenizer, self._shared = context, version, tokenizer, shared
        self._recipe: Recipe = context.recipe
        self._advantage = self._recipe.advantage.build()
        self._traces = context.directory.traces(150)
        self._codec = TokenizerCodec(tokenizer)
        self._pacing = Pacing(
            self._recipe.schedule,
            deck,
            context.request(Purpose.TRAIN, context.kg_versions([GRAPH])),
            context.rollouts,
            lambda _: None,
            version,
            lambda _: None,
        )

    def run(self) -> None:
        schedule = self._recipe.schedule
        while True:
            self._step()
            self._publish(schedule.max_staleness + 2)
            if self._pacing.step % schedule.checkpoint_every == 0:
                self._checkpoint()

    def _step(self) -> None:
        received = self._pacing.collect(self._wait)
        self._pacing.refill()
        samples = {one.request_id: self._advantage.samples(one.group) for one in received}
        outcomes = dict.fromkeys(samples, GroupOutcome.TRAINED)
        self._pacing.close_step(outcomes)
        self._pacing.changed()
        traced = [
            trace(self._pacing.step, outcomes[one.request_id], one.group, self._advantage, self._codec)
            for one in received
        ]
        self._traces.write(self._pacing.step, self._version.id, traced)
        with self._shared.groups.get_lock():
            self._shared.groups.value += len(received)

    def _wait(self) -> None:
        self._shared.training.wait()

    def _publish(self, keep: int) -> None:
        store, run = self._context.store, self._context.run
        self._version = publish(store, run, self._version.number + 1, self._recipe, self._tokenizer)
        self._pacing.publish(self._version)
        store.retain(run, keep)
        with self._shared.versions.get_lock():
            self._shared.versions.value += 1

    def _checkpoint(self) -> None:
        directory = self._context.directory
        self._pacing.ledger.archive(directory.settled_path)
        delete_settled = self._pacing.release()
        state = json.dumps(self._pacing.to_json()).encode()
        write_file(directory.path / "state.json", state)
        write_file(directory.ledger_path, json.dumps(self._pacing.ledger.to_json()).encode())
        delete_settled()
