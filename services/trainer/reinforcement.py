"""Reinforcement learning: collect groups, take a step, publish, and never lose count."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch

from kbqa.policy_store import PolicyVersion
from kbqa.policy_store.durable import write_file
from kbqa.training.checkpoints import Checkpoints
from kbqa.training.grpo import make_optimiser
from kbqa.training.update import UpdateResult, grpo_update
from kbqa.trajectory import TrainingSample
from kbqa.wire import Purpose
from services.trainer.context import Context, Stopped
from services.trainer.ledger import Outcome
from services.trainer.pacing import Deck, Pacing, Received
from services.trainer.phases import Material, keep_result
from services.trainer.statistics import episode_means, tree_means
from services.trainer.student import Student


class Reinforcement:
    """The `rl` phase of a run, from its beginning or from the newest checkpoint.

    Args:
        start: the version that it begins with, the run's newest unless there is a checkpoint.
    """

    def __init__(self, context: Context, material: Material, start: PolicyVersion) -> None:
        self._context, self._material = context, material
        self._schedule = context.recipe.schedule
        context.journal.enter("rl", of=self._schedule.steps)
        context.use_threads(alone=False)
        self._student = Student.load(start.path)
        self._grpo = context.recipe.optimisation.build(context.recipe.rollout)
        self._rate = context.recipe.optimisation.rate()
        self._advantage = context.recipe.advantage.build()
        needs_reference = self._grpo.surrogate.kl_coefficient > 0
        self._reference = Student.load(start.path).model if needs_reference else None
        torch.manual_seed(context.record.seed)
        self._optimiser = make_optimiser(self._student.model, self._grpo)
        self._checkpoints = Checkpoints(context.directory.checkpoints_path, context.run)
        self._version = start
        self._pacing = Pacing(
            self._schedule,
            Deck(material.questions.train, context.record.seed),
            context.request(Purpose.TRAIN, context.kg_version(material.kg)),
            context.send,
            context.directory.inbox,
            start,
        )
        self._seconds_before = 0.0
        self._began = time.monotonic()
        self._restore()

    @property
    def seconds(self) -> float:
        """Time spent on this phase, restarts included."""
        return self._seconds_before + time.monotonic() - self._began

    def run(self) -> None:
        """Train until the schedule is over, then evaluate the last version on the test questions."""
        try:
            while not self._over():
                self._step()
        except Stopped:  # only ever raised between two steps
            self._checkpoint()
            raise
        self._pacing.end()
        self._checkpoint()
        evaluation = self._context.evaluate(self._version, self._material.questions.test, "test")
        keep_result(self._context, "rl", evaluation)

    def _over(self) -> bool:
        schedule = self._schedule
        clocks = (
            (self.seconds, schedule.max_seconds),
            (self._context.journal.seconds, schedule.max_run_seconds),
        )
        late = any(limit is not None and seconds >= limit for seconds, limit in clocks)
        return late or self._pacing.step >= schedule.steps

    def _step(self) -> None:
        began = time.monotonic()
        received = self._pacing.collect(self._context.check)
        waited_s = time.monotonic() - began
        if self._schedule.max_staleness > 0:
            self._pacing.refill()  # the next step is rolled out while this one is trained
        samples = {r.request_id: self._advantage.samples(r.group) for r in received}
        result = self._train(list(samples.values()))
        trained = any(result.trained)
        outcomes = {
            request_id: _outcome(bool(group), learned)
            for (request_id, group), learned in zip(samples.items(), result.trained, strict=True)
        }
        self._pacing.close_step(outcomes)
        step = self._pacing.step
        if trained:
            means = episode_means(r.group for r in received)
            self._version = self._context.publish(
                self._student, step, {name: means[name] for name in ("f1", "reward")}
            )
            self._pacing.publish(self._version)
            self._retain()
        self._record(received, result, waited_s)
        if step % self._schedule.checkpoint_every == 0:
            self._checkpoint()
        if step % self._schedule.validate_every == 0 and step < self._schedule.steps:
            self._context.evaluate(self._version, self._material.questions.validation, "validation")

    def _train(self, questions: Sequence[Sequence[TrainingSample]]) -> UpdateResult:
        """Learn from the samples of each question, at the learning rate of this step."""
        rate = self._rate.at(self._pacing.step, self._schedule.steps)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        return grpo_update(self._student.model, self._optimiser, questions, self._grpo, self._reference)

    def _record(self, received: Sequence[Received], result: UpdateResult, waited_s: float) -> None:
        pacing = self._pacing
        values: dict[str, Any] = {
            **episode_means(r.group for r in received),
            **tree_means(r.group for r in received),
            "staleness": fmean(r.staleness for r in received),
            "waited_s": round(waited_s, 3),
            "skipped": not any(result.trained),
            "version": self._version.id,
            "groups": pacing.ledger.counts(),
            **pacing.counters,
        }
        values |= result.metrics
        self._context.journal.record("step", values, pacing.step)

    def _checkpoint(self) -> None:
        """Save everything, and only then let go of the answers that it settles."""
        state = {
            "pacing": self._pacing.to_json(),
            "seconds": self.seconds,
        }
        self._checkpoints.save(self._pacing.step, self._student.model, self._optimiser, state)
        ledger = json.dumps(self._pacing.ledger.to_json()).encode()
        write_file(self._context.directory.ledger_path, ledger)
        self._pacing.saved()

    def _restore(self) -> None:
        checkpoint = self._checkpoints.restore(self._student.model, self._optimiser)
        if checkpoint is None:
            self._checkpoint()
            return
        context = self._context
        self._seconds_before = float(checkpoint.state["seconds"])
        self._version = context.publish(self._student, checkpoint.step, {})
        self._pacing.restore(checkpoint.state["pacing"], self._version)
        context.journal.forget_after(checkpoint.step)
        context.journal.record("resumed", {"version": self._version.id}, checkpoint.step)

    def _retain(self) -> None:
        """Keep what groups in flight may have been written with, and what results speak of."""
        results = self._context.journal.results.get("versions", {})
        keep = self._schedule.max_staleness + 2
        self._context.store.retain(self._context.run, keep, protect=results.values())


def _outcome(has_samples: bool, learned: bool) -> Outcome:
    if not has_samples:
        return Outcome.NO_SPREAD
    return Outcome.TRAINED if learned else Outcome.NON_FINITE
