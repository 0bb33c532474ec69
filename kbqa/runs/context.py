"""What every phase of a run works with."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from safetensors import SafetensorError

from kbqa.bases import READER
from kbqa.confidence import Calibration
from kbqa.errors import (
    GraphUnavailableError,
    PolicyIntegrityError,
    PolicyStoreUnavailableError,
    RunError,
)
from kbqa.kg.actions import GraphTools
from kbqa.kg.tools import ListedGraphTools
from kbqa.policies.probe import Precision, Probe
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.policy_store.manifest import RECIPE_NAME, Kind
from kbqa.policy_store.shipped import shipped_reader
from kbqa.recipes import Recipe
from kbqa.runs.directory import RunDirectory, RunRecord
from kbqa.runs.evaluation import Evaluator, VersionEvaluation
from kbqa.runs.failures import SCOPES, Scope
from kbqa.runs.journal import Journal
from kbqa.runs.rollouts import RolloutSource
from kbqa.runs.student import Student
from kbqa.training.adapters import has_adapter
from kbqa.training.ranks import ALONE, Ranks
from kbqa.trajectory import Question
from kbqa.wire import Purpose, RolloutFailure, RolloutRequest

_POLL_S = 0.5
# Requests of an evaluation, unless the recipe has more in flight: few enough that none waits until
# its deadline.
EVALUATED_AT_A_TIME = 64


class Stopped(Exception):
    """The run was told to stop; raised at the next point at which stopping loses nothing."""


@dataclass(frozen=True, slots=True)
class Context:
    """A run, and everything that its phases need.

    Attributes:
        stop: set when the run has to stop.
        home: directory that contains the files of cold starts.
        data: directory of data sets that are not generated.
        rollouts: plays the requested questions.
        graph_wait_s: how long the graphs are waited for, in seconds.
        traces: steps whose rollouts are kept as text.
        clock: seconds, by which reinforcement learning is timed.
        fence: raises `LeaseLostError` if another process may work on the run now; called before writing.
        ranks: the processes that reinforcement learning is sharded over, of which this is the first.
        alone: while its context lasts, nobody else computes on the trainer's GPU.
    """

    directory: RunDirectory
    record: RunRecord
    recipe: Recipe
    store: PolicyStore
    tools: ListedGraphTools
    journal: Journal
    rollouts: RolloutSource
    stop: threading.Event
    home: Path
    data: Path | None = None
    graph_wait_s: float = 60.0
    traces: int = 0
    clock: Callable[[], float] = time.monotonic
    fence: Callable[[], None] = lambda: None
    ranks: Ranks = ALONE
    alone: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def run(self) -> str:
        return self.record.id

    @property
    def weights_seed(self) -> int:
        """Random seed of new weights."""
        seed = self.recipe.weights_seed
        return self.record.seed if seed is None else seed

    @property
    def graph(self) -> GraphTools:
        """The tools on the recipe's terms."""
        return self.recipe.graph.terms().over(self.tools)

    def check(self) -> None:
        """Stop here if the run was told to.

        Raises:
            Stopped: it was.
            LeaseLostError: another process may work on the run now.
        """
        self.fence()
        if self.stop.is_set():
            raise Stopped

    def kg_versions(self, kgs: Iterable[str]) -> dict[str, str]:
        """The versions of graphs by name, once kg_server answers.

        Raises:
            RunError: a graph is not loaded, or kg_server does not answer in time.
        """
        loaded = self._loaded_versions()
        wanted = list(dict.fromkeys(kgs))
        for kg in wanted:
            if kg not in loaded:
                raise RunError(
                    f'the graph "{kg}" of data set {self.record.dataset} is not loaded: '
                    f"run kbqa kg load {kg} FILE, then resume the run"
                )
        return {kg: loaded[kg] for kg in wanted}

    def request(
        self,
        purpose: Purpose,
        kg_versions: Mapping[str, str],
        stage_of: Callable[[str], int | None] = lambda _: None,
    ) -> Callable[[str, Question, int], RolloutRequest]:
        """Makes requests of one purpose from id, question and least version number.

        Args:
            kg_versions: of the graphs of all questions, by name.
            stage_of: the stage of the curriculum that a request belongs to, by its id.
        """
        return partial(self._request, purpose, kg_versions, stage_of, self.recipe.digest())

    def look(self, failure: RolloutFailure, kg_versions: Mapping[str, str]) -> None:
        """Look whether the cause that a worker gives for a failure exists here, too.

        Args:
            kg_versions: of the graphs that the run was started with, by name.

        Raises:
            RunError: it does, so that no other worker can do better.
        """
        # What does not answer now may answer later, and proves nothing.
        with suppress(GraphUnavailableError, PolicyStoreUnavailableError):
            if SCOPES[failure.reason] is Scope.RUN:
                self._require_graphs(kg_versions)
            else:
                self._require_newest()

    def evaluate(
        self, version: PolicyVersion, questions: tuple[Question, ...], split: str
    ) -> VersionEvaluation:
        """Evaluate the newest version and write down the result."""
        schedule = self.recipe.schedule
        # A question is one trajectory here, where training has a group of them.
        trajectories = schedule.max_in_flight * self.recipe.rollout.width
        kg_versions = self.kg_versions(question.kg for question in questions)
        evaluator = Evaluator(
            self.request(Purpose.EVALUATE, kg_versions),
            self.rollouts,
            max_in_flight=min(trajectories, max(EVALUATED_AT_A_TIME, schedule.max_in_flight)),
            deadline_s=schedule.request_deadline_s,
            check=self.check,
            look=partial(self.look, kg_versions=kg_versions),
        )
        evaluation = evaluator.evaluate(version, questions, split)
        self.journal.record("evaluation", evaluation.to_json())
        return evaluation

    def version(self, version: str) -> PolicyVersion:
        """A version of this run by its full id; its files are present and complete.

        Raises:
            NoPolicyError, PolicyIntegrityError: they are not.
        """
        found = self.store.get(self.run, version)
        self.store.verify(found)
        return found

    def publish(
        self,
        student: Student,
        step: int,
        metrics: Mapping[str, float],
        calibration: Calibration | None = None,
    ) -> PolicyVersion:
        """Publish the student as the run's newest version.

        Version numbers are never reused: a worker may still hold a version that a restore has undone.

        Args:
            step: optimiser steps of reinforcement learning.
            calibration: how sure its answers are, if that was measured; otherwise, a policy that has begun
                with the reader is as sure as the reader.

        Raises:
            RunError: it cannot be written.
        """
        kind: Kind = "lora" if has_adapter(student.model) else "full"
        precision: Precision = "bfloat16" if self.recipe.optimisation.precision == "bf16" else "float32"
        write = partial(student.save, precision=precision)
        return self._publish(write, kind, step, metrics, student.probe(precision), calibration)

    def publish_again(self, version: PolicyVersion, calibration: Calibration | None) -> PolicyVersion:
        """Publish an earlier version of this run as the newest one, because workers take no other.

        Raises:
            RunError: it cannot be written.
            NoPolicyError, PolicyIntegrityError: its files are not there.
        """
        version = self.version(version.id)  # of a bucket, the files are fetched
        manifest = version.manifest

        def copy(into: Path) -> None:
            for name in manifest.files.keys() - {RECIPE_NAME}:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(version.path / name, into / name)

        return self._publish(
            copy, manifest.kind, manifest.step, manifest.metrics, manifest.probe, calibration
        )

    def _publish(
        self,
        write: Callable[[Path], Mapping[str, str] | None],
        kind: Kind,
        step: int,
        metrics: Mapping[str, float],
        probe: Probe | None,
        calibration: Calibration | None,
    ) -> PolicyVersion:
        self.fence()
        newest = self.store.newest(self.run)
        if self.recipe.base_model == READER:
            calibration = self._beside_the_reader(calibration)
        try:
            return self.store.publish(
                self.run,
                1 if newest is None else newest.number + 1,
                write,
                recipe=self.recipe.model_dump(mode="json"),
                recipe_digest=self.recipe.digest(),
                step=step,
                metrics=metrics,
                base_model=self.recipe.base_model,
                kind=kind,
                probe=probe,
                calibration=calibration,
                graphs=self.journal.results.get("graphs", ()),
            )
        except (OSError, SafetensorError) as error:
            raise RunError(
                f"a policy version of run {self.run} cannot be written ({error}): free some disk space, "
                "then resume the run"
            ) from error

    def _beside_the_reader(self, measured: Calibration | None) -> Calibration | None:
        """The calibration of a policy that has begun with the reader.

        Only if a KL penalty holds it near the reader, what its searches say is worth about as much as the
        reader's (docs/adr/0093-what-begins-with-the-reader-searches-too.md).

        Args:
            measured: without a search, on the run's validation questions; None if these say nothing.
        """
        readers = shipped_reader().manifest.calibration
        if readers is None:
            return measured
        is_held = self.recipe.optimisation.kl_coefficient > 0
        return replace(measured or readers, search=readers.search if is_held else None)

    def _require_graphs(self, kg_versions: Mapping[str, str]) -> None:
        loaded = {graph.name: graph.version for graph in self.tools.graphs()}
        for kg, version in kg_versions.items():
            if loaded.get(kg) != version:
                raise RunError(
                    f"the graph {kg} changed from version {version} to {loaded.get(kg, 'none')} while the "
                    "run used it: load the original and resume the run, or start another one"
                )

    def _require_newest(self) -> None:
        newest = self.store.newest(self.run)
        if newest is None:
            raise RunError(f"the policy store holds no version of run {self.run} any more: start another run")
        try:
            self.store.verify(newest)
        except PolicyIntegrityError as error:
            raise RunError(
                f"policy version {newest.id} of run {self.run} is damaged in the policy store ({error}): "
                "look for the cause in its disk, then resume the run, which publishes its weights again"
            ) from error

    def _loaded_versions(self) -> dict[str, str]:
        deadline = time.monotonic() + self.graph_wait_s
        while True:
            self.check()
            try:
                return {graph.name: graph.version for graph in self.tools.graphs()}
            except GraphUnavailableError as error:
                if time.monotonic() > deadline:
                    raise RunError(str(error)) from error
                time.sleep(_POLL_S)

    def _request(
        self,
        purpose: Purpose,
        kg_versions: Mapping[str, str],
        stage_of: Callable[[str], int | None],
        recipe_digest: str,
        request_id: str,
        question: Question,
        number: int,
    ) -> RolloutRequest:
        rollout, training = self.recipe.rollout, purpose is Purpose.TRAIN
        # The same seed for all versions, so that their answers differ only by what they have learned.
        stream = request_id if training else f"{purpose}/{question.id}"
        return RolloutRequest(
            run=self.run,
            request_id=request_id,
            purpose=purpose,
            # No worker needs the gold program, and reinforcement learning must not see it.
            question=replace(question, path=(), form="", sparql=""),
            kg_version=kg_versions[question.kg],
            recipe_digest=recipe_digest,
            min_policy_version=number,
            n=rollout.width if training else 1,
            temperature=rollout.temperature if training else self.recipe.evaluation.temperature,
            stage=stage_of(request_id),
            seed=random.Random(f"{self.record.seed}/{stream}").getrandbits(31),
            sent_at=0.0,  # set by the sender, like the deadline
            deadline_s=self.recipe.schedule.request_deadline_s,
        )
