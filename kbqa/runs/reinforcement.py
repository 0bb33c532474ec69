"""Reinforcement learning: collect groups, take a step, publish a version, keep the books.

The next checkpoint contains everything that a step changes. If the process is killed, the steps
after the newest checkpoint are lost and taken again; with a deterministic recipe, they give the
same numbers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from kbqa.bases import find_base
from kbqa.confidence import Calibration
from kbqa.errors import CheckpointError, RunError
from kbqa.policies.in_process import load_model
from kbqa.policy_store import PolicyVersion
from kbqa.policy_store.durable import write_file
from kbqa.recipes.curriculum import plain_course
from kbqa.runs.context import Context, Stopped
from kbqa.runs.guards import Guards
from kbqa.runs.ledger import GroupOutcome
from kbqa.runs.pacing import Pacing, Received, position_of
from kbqa.runs.phases import Material
from kbqa.runs.records import StepRecord
from kbqa.runs.selection import Selection
from kbqa.runs.statistics import Curves, advantage_spread
from kbqa.runs.student import Student
from kbqa.runs.transcripts import trace
from kbqa.training.adapters import load_quantised
from kbqa.training.checkpoints import Checkpoints
from kbqa.training.generators import seed_generators
from kbqa.training.learner import begin
from kbqa.training.throughput import utilisation
from kbqa.training.update import UpdateResult
from kbqa.trajectory import Question, TrainingSample
from kbqa.wire import Purpose

logger = logging.getLogger(__name__)


class Reinforcement:
    """The `rl` phase of a run, from its beginning or from the newest checkpoint.

    Args:
        start: the version that it begins with, the run's newest unless there is a checkpoint.
    """

    def __init__(self, context: Context, material: Material, start: PolicyVersion) -> None:
        self._context, self._material = context, material
        self._schedule = context.recipe.schedule
        context.journal.enter("rl", of=self._schedule.steps)
        whole = _whole_weights(context, start)
        named = context.recipe.optimisation.reference
        reference = whole if named is None else find_base(named).directory
        self._grpo = context.recipe.optimisation.build(context.recipe.rollout)
        self._rate = context.recipe.optimisation.rate()
        self._advantage = context.recipe.advantage.build()
        is_quantised = self._grpo.adapter is not None and self._grpo.adapter.quantised
        self._student = _student(context, whole, quantised=is_quantised)
        seed_generators(context.record.seed)
        self._learner = begin(
            self._student.model,
            self._grpo,
            reference=partial(load_model, reference),
            seed=context.record.seed,
            ranks=context.ranks,
        )
        self._checkpoints = Checkpoints(
            context.directory.checkpoints_path, context.run, self._schedule.keep_checkpoints, context.fence
        )
        self._guards = Guards(context.recipe.guards)
        self._selection = Selection(self._schedule.best_by)
        newest = context.store.newest(context.run)
        if not self._checkpoints.steps() and newest is not None and newest.id != start.id:
            # The checkpoints were deleted. Workers take the newest version, so publish the first one again.
            start = context.publish(self._student, 0, {})
        self._version = start
        curriculum, train = context.recipe.curriculum, material.questions.train
        draw = plain_course if curriculum is None else curriculum.build
        self._course = draw(train, context.record.seed, material.shares)
        kg_versions = context.kg_versions(material.kgs)
        self._origin = {
            "training questions": _digest(train),
            **{f"graph {kg}": version for kg, version in kg_versions.items()},
        }
        self._pacing = Pacing(
            self._schedule,
            self._course,
            context.request(Purpose.TRAIN, kg_versions, self._stage_of),
            context.rollouts,
            partial(self._student.fault, longest=context.recipe.rollout.max_tokens),
            start,
            partial(context.look, kg_versions=kg_versions),
        )
        self._curves = Curves(train)
        self._traces, self._codec = context.directory.traces(context.traces), self._student.codec
        self._spent: defaultdict[str, float] = defaultdict(float)  # seconds by part since the last record
        self._ended: str | None = None  # why, if not by the schedule
        self._calibration: Calibration | None = None  # of the best weights; of the newest if none are best
        self._unpublished: dict[str, float] | None = None  # metrics of weights that no version holds yet
        self._published = 0  # the step after which a version was last published
        self._validated = 0  # the step after which the validation questions were last asked
        self._checkpointed = -1  # the step of the newest checkpoint
        self._learning_rate = 0.0  # of the last step
        self._sampled_tokens = 0  # of all groups that were trained on or taught nothing
        self._seconds_before = 0.0
        self._began = context.clock()
        self._restore()

    @property
    def seconds(self) -> float:
        """Time spent on this phase, restarts included."""
        return self._seconds_before + self._context.clock() - self._began

    def run(self) -> None:
        """Train until the schedule or a guard ends it, then judge the result."""
        try:
            self._validate()  # unless it was done before the process died
            while not self._over():
                self._step()
                if self._validate() or self._pacing.step % self._schedule.checkpoint_every == 0:
                    self._checkpoint()
        except Stopped:  # never raised while weights change
            if self._checkpointed != self._pacing.step:
                self._checkpoint()
            self._checkpoints.wait()
            raise
        self._pacing.end()
        self._checkpoint()
        self._checkpoints.wait()
        self._material.judge(self._context, "rl", self._final_version())

    def _over(self) -> bool:
        schedule, patience = self._schedule, self._context.recipe.guards.patience
        if patience is not None and self._selection.since_best >= patience:
            self._end(f"no new best in {self._selection.since_best} looks")
        if self._ended is not None:
            return True
        clocks = (
            (self.seconds, schedule.max_seconds),
            (self._context.journal.seconds, schedule.max_run_seconds),
        )
        most = schedule.max_sampled_tokens
        if most is not None and self._sampled_tokens >= most:
            return True
        late = any(limit is not None and seconds >= limit for seconds, limit in clocks)
        return late or self._pacing.step >= schedule.steps

    def _step(self) -> None:
        with self._timed("waited_s"):
            received = self._pacing.collect(self._context.check)
        if self._schedule.max_staleness > 0:
            self._pacing.refill()  # the next step is rolled out while this one is trained
        samples = {r.request_id: self._advantage.samples(r.group) for r in received}
        with self._timed("trained_s"), self._context.alone():
            result = self._train(list(samples.values()))
        self._sampled_tokens += sum(r.sampled_tokens for r in received)
        trained = any(result.trained)
        outcomes = {
            request_id: _outcome(group, learned)
            for (request_id, group), learned in zip(samples.items(), result.trained, strict=True)
        }
        self._pacing.close_step(outcomes)
        step = self._pacing.step
        curves = self._curves.of([r.group for r in received])
        if trained:
            self._pacing.changed()
            self._unpublished = {name: curves[name] for name in ("f1", "reward")}
            if step - self._published >= self._schedule.publish_every:
                self._publish()
        record = self._record(received, result, outcomes, curves, advantage_spread(samples.values()))
        self._trace(received, outcomes)
        self._watch(record, taught=any(samples.values()), trained=trained)

    def _publish(self) -> None:
        """Publish the current weights, unless a version holds them already."""
        if self._unpublished is None:
            return
        step, metrics = self._pacing.step, self._unpublished
        with self._timed("published_s"):
            self._learner.gather()
            self._version = self._context.publish(self._student, step, metrics)
        self._unpublished, self._published = None, step
        self._pacing.publish(self._version)
        self._retain()

    def _train(self, questions: Sequence[Sequence[TrainingSample]]) -> UpdateResult:
        """Learn from the samples of each question, at the learning rate of this step."""
        self._learning_rate = self._rate.at(self._pacing.step, self._schedule.steps)
        return self._learner.update(questions, self._learning_rate, self._context.check)

    def _record(
        self,
        received: Sequence[Received],
        result: UpdateResult,
        outcomes: Mapping[str, GroupOutcome],
        curves: Mapping[str, Any],
        advantage_std: float | None,
    ) -> StepRecord:
        """Record the step: its groups, its metrics, and the time since the last record."""
        pacing, stage = self._pacing, None
        spent = {part: round(seconds, 3) for part, seconds in self._spent.items()}
        measured: dict[str, Any] = {**pacing.counters, **result.metrics, **spent}
        if self._context.recipe.curriculum is not None:
            # The stage of the request: after a change, groups of the previous stage are still in flight.
            stage = fmean(self._course.stage_at(position_of(r.request_id)) for r in received)
        record = StepRecord(
            no_spread=fmean(outcome is GroupOutcome.NO_SPREAD for outcome in outcomes.values()),
            not_finite=fmean(outcome is GroupOutcome.NON_FINITE for outcome in outcomes.values()),
            skipped=not any(result.trained),
            staleness=fmean(r.staleness for r in received),
            staleness_max=max(r.staleness for r in received),
            learning_rate=self._learning_rate,
            advantage_std=advantage_std,
            sampled_tokens=self._sampled_tokens,
            version=self._version.id,
            groups=pacing.ledger.counts(),
            queued_s=fmean(r.timings.queued_s for r in received),
            rolled_out_s=fmean(r.timings.rollout_s for r in received),
            engine_s=fmean(r.timings.engine_s for r in received),
            graph_s=fmean(r.timings.graph_s for r in received),
            aged_s=fmean(r.age_s for r in received),
            mfu=utilisation(result.flops, self._spent["trained_s"], self._context.ranks),
            stage=stage,
            curves=curves,
            **measured,
        )
        self._spent.clear()
        self._context.journal.record("step", record.to_json(), pacing.step)
        return record

    def _trace(self, received: Sequence[Received], outcomes: Mapping[str, GroupOutcome]) -> None:
        """Keep the step's groups as text, for people."""
        step = self._pacing.step
        groups = [
            trace(step, outcomes[r.request_id], r.group, self._advantage, self._codec) for r in received
        ]
        self._traces.write(step, self._version.id, groups)

    def _watch(self, record: StepRecord, *, taught: bool, trained: bool) -> None:
        """Let the guards and the selection see the record of a step.

        Raises:
            RunError: too many steps in a row were not finite.
        """
        step, journal = self._pacing.step, self._context.journal
        for alarm in self._guards.watch(step, record):
            logger.warning("alarm", extra={"alarm": alarm.name, "says": str(alarm), "step": step})
            journal.record("alarm", {"alarm": alarm.name, "value": alarm.value, "bound": alarm.bound})
        self._selection.after_step(record.to_json())
        self._enter_stage(self._course.after_step(record.to_json(), self._pacing.position))
        if (reason := self._guards.stops()) is not None:
            self._end(reason)
        self._keep()
        if taught:
            self._guards.count_not_finite(step, trained)

    def _validate(self) -> bool:
        """Evaluate on the validation questions if that is due; returns whether the weights are the best."""
        step, schedule = self._pacing.step, self._schedule
        last = step >= schedule.steps and schedule.best_by is None  # the result is judged anyway
        if step == self._validated or step % schedule.validate_every or last:
            return False
        self._publish()
        with self._timed("evaluated_s"):
            evaluation = self._context.evaluate(
                self._version, self._material.questions.validation, "validation"
            )
        self._validated = step
        is_best = self._selection.after_evaluation(step, self._version.id, evaluation.means)
        if is_best or self._selection.best is None:
            self._calibration = evaluation.calibration
        self._enter_stage(self._course.after_evaluation(evaluation.means, self._pacing.position))
        self._keep()
        return is_best

    def _stage_of(self, request_id: str) -> int | None:
        """The stage of a training request; None without a curriculum."""
        if self._context.recipe.curriculum is None:
            return None
        return self._course.stage_at(position_of(request_id))

    def _enter_stage(self, reason: str | None) -> None:
        """Record a change to the curriculum's next stage."""
        if reason is not None:
            course = self._course
            logger.info("a stage begins", extra={"stage": course.name, "reason": reason})
            values = {"stage": course.stage, "name": course.name, "reason": reason}
            self._context.journal.record("stage", values)
            self._keep()

    def _end(self, reason: str) -> None:
        """End early: take no further step."""
        if self._ended is None:
            self._ended = reason
            logger.warning("reinforcement learning ends early", extra={"reason": reason})
            self._context.journal.record("ended", {"reason": reason})
            self._keep()

    def _keep(self) -> None:
        """Let the run's state show which alarms are on, which weights are best, and why it ended early."""
        best, journal = self._selection.best, self._context.journal
        state = {
            "alarms": {name: asdict(alarm) for name, alarm in self._guards.raised.items()},
            "best": best and asdict(best),
            "ended": self._ended,
        }
        if self._context.recipe.curriculum is not None:
            state["stage"] = self._course.name
        if any(journal.results.get(name) != value for name, value in state.items()):
            journal.keep(**state)

    def _final_version(self) -> PolicyVersion:
        """The version that the run ends with, the newest one: workers take no other."""
        best = self._selection.best
        if best is not None and best.step != self._pacing.step:
            self._checkpoints.load_weights(best.step, self._student.model)
            self._version = self._context.publish(self._student, best.step, {}, self._calibration)
        elif self._calibration is not None:
            self._version = self._context.publish_again(self._version, self._calibration)
        return self._version

    def _checkpoint(self) -> None:
        """Save everything, and only once it is durable delete the replies that the checkpoint settles."""
        self._context.fence()
        self._publish()  # the selection names a version
        with self._timed("checkpointed_s"):
            self._checkpoints.wait()  # the one before deletes replies, too
        step = self._pacing.step
        self._selection.at_checkpoint(step, self._version.id)
        best = self._selection.best
        self._pacing.ledger.archive(self._context.directory.settled_path)
        state = {
            "origin": self._origin,
            "pacing": self._pacing.to_json(),
            "guards": self._guards.to_json(),
            "selection": self._selection.to_json(),
            "course": self._course.to_json(),
            "validated": self._validated,
            "calibration": self._calibration and asdict(self._calibration),
            "ended": self._ended,
            "sampled_tokens": self._sampled_tokens,
            "seconds": self.seconds,
        }
        ledger = json.dumps(self._pacing.ledger.to_json()).encode()
        delete_settled = self._pacing.release()

        def on_saved() -> None:
            write_file(self._context.directory.ledger_path, ledger)
            delete_settled()

        needs = () if best is None else [best.step]
        with self._timed("checkpointed_s"):
            self._checkpoints.save(step, self._learner, state, needs=needs, on_saved=on_saved)
        self._checkpointed = step

    def _restore(self) -> None:
        context, refused = self._context, list[CheckpointError]()
        checkpoint = self._checkpoints.restore(self._learner, refused.append)
        if checkpoint is None:
            context.journal.forget_after(0)
            self._checkpoint()
            return
        self._checkpointed, state = checkpoint.step, checkpoint.state
        for name, found in self._origin.items():
            if state["origin"].get(name) != found:
                raise RunError(
                    f"the {name} changed since run {context.run} was last trained, so its position in the "
                    "questions is no longer valid: restore the original and resume, or start another run"
                )
        self._seconds_before = float(state["seconds"])
        self._sampled_tokens = int(state.get("sampled_tokens", 0))
        self._version = context.publish(self._student, checkpoint.step, {})
        self._pacing.restore(state["pacing"], self._version)
        self._published = self._pacing.step
        self._guards.restore(state["guards"])
        self._selection.restore(state["selection"])
        if "course" in state:  # a checkpoint from before there were curricula has none
            self._course.restore(state["course"])
        self._validated, self._ended = state["validated"], state["ended"]
        if (calibration := state.get("calibration")) is not None:
            self._calibration = Calibration(**calibration)
        context.journal.forget_after(checkpoint.step)
        self._traces.forget_after(checkpoint.step)
        self._keep()
        context.journal.record("resumed", {"version": self._version.id}, checkpoint.step)
        for error in refused:
            context.journal.record("refused", {"reason": str(error)})

    def _retain(self) -> None:
        """Delete old versions, except those that groups in flight may use and results refer to."""
        protected = {*self._context.journal.results.get("versions", {}).values()}
        if self._selection.best is not None:
            protected.add(self._selection.best.version)
        self._context.store.retain(self._context.run, self._schedule.max_staleness + 2, protect=protected)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent[part] += time.monotonic() - began


def _whole_weights(context: Context, start: PolicyVersion) -> Path:
    """Directory of the weights that a run begins with, in full."""
    if start.manifest.kind == "lora" and context.recipe.cold_start is None:
        # A fresh one, which the learner makes again.
        assert context.recipe.base_model is not None
        return find_base(context.recipe.base_model).directory
    return start.path


def _student(context: Context, whole: Path, *, quantised: bool) -> Student:
    """The policy that is trained, with the weights of a directory."""
    student = Student.load(whole)
    if not context.recipe.chat_template:
        student = student.without_template()
    return replace(student, model=load_quantised(whole, context.ranks.device)) if quantised else student


def _digest(questions: Sequence[Question]) -> str:
    """SHA-256 over the ids of the questions; with seed and recipe, they determine the order of requests."""
    return hashlib.sha256("\n".join(question.id for question in questions).encode()).hexdigest()


def _outcome(samples: Sequence[TrainingSample], learned: bool) -> GroupOutcome:
    if not any(any(sample.advantages) for sample in samples):
        return GroupOutcome.NO_SPREAD
    return GroupOutcome.TRAINED if learned else GroupOutcome.NON_FINITE
