"""A lesson: the promoted policy learns from corrections beside a replay of earlier questions.

The training takes place aside, in a home of its own under `corrections`. Only its result is published, as a
version with whole weights, and `kbqa.corrections.judging` decides whether it is promoted. A process that dies
in between leaves the promoted version as it was.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kbqa.cold_start.files import DemonstrationEntry, write_entries
from kbqa.corrections.demonstrating import demonstrations
from kbqa.corrections.examining import Examination
from kbqa.corrections.judging import CORRECTIONS, EARLIER, Judgement, compare
from kbqa.corrections.record import CorrectionRecord, Earlier, Lesson, RefusedCorrection, TaughtCorrection
from kbqa.datasets.records import write_questions
from kbqa.datasets.splits import Splits, spread
from kbqa.errors import CorrectionsError, RunConflictError
from kbqa.kg.tools import ListedGraphTools
from kbqa.policies.chooser.model import Chooser
from kbqa.policies.probe import Precision
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.policy_store.durable import put_in_place
from kbqa.recipes import Recipe, recipe_from
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits, State
from kbqa.runs.local import open_run
from kbqa.runs.student import Student
from kbqa.runs.training import train
from kbqa.trajectory import Question

_ASIDE, _LOCK = ".lesson-", "lesson.lock"
_JUDGED_BY = 120  # earlier questions that choose the best weights of a lesson, beside the corrections

# What differs from the recipe that the policy was trained with. It has learned already what comes before
# the lesson, and needs few steps.
_CHANGES: Mapping[str, Any] = {
    "small_policy": None,
    "curriculum": None,
    "schedule.best_by": {"metric": "f1", "split": "validation", "direction": "max"},
}

# A policy that writes learns from rewards. A trained policy is so certain that all episodes of a question
# which it gets wrong make the same mistake, and teach nothing, unless they are drawn at a higher temperature.
_BY_REWARDS: Mapping[str, Any] = {
    "cold_start": None,
    "rollout.temperature": 1.5,
    "schedule.steps": 30,
    "schedule.validate_every": 10,
    "schedule.checkpoint_every": 10,
}
_SLOWER = 0.3  # the learning rate, relative to the recipe's: what was learned before must stay

# A policy that chooses imitates paths to the right answers: no reward teaches a relation that is never tried.
_BY_IMITATION: Mapping[str, Any] = {
    "optimisation.lora": None,
    "cold_start": {
        "paths": "mined",
        "fresh_names": False,
        "batch": 32,
        "learning_rate": 1.5e-4,
        "warm_up_steps": 5,
        "decay": "cosine",
        "token_budget": 1_000_000,
        "validate_every": 10,
        "patience": 10,
        "lora": {"rank": 32, "alpha": 64, "targets": ["query", "key", "value", "dense"]},
    },
    "schedule.steps": 0,
    "guards.patience": None,
}
_FEWEST_STEPS, _EPOCHS = 30, 3  # of imitation


def teach(
    home: Path,
    store: PolicyStore,
    tools: ListedGraphTools,
    examined: Examination,
    *,
    earlier: Splits,
    earlier_name: Earlier,
    must_answer: Sequence[Question] = (),
    share: float = 0.3,
    overrides: Mapping[str, Any] | None = None,
    seed: int = 1,
    name: str | None = None,
) -> Lesson:
    """Teach the promoted policy the accepted corrections, and promote the result if it is no worse.

    Args:
        earlier: questions of earlier training: `train` is replayed, `validation` chooses the best weights,
            and `test` decides about the promotion.
        earlier_name: what they are, for the record.
        must_answer: questions of which none may break.
        share: of the corrections among the questions trained on.
        overrides: of the recipe that the policy was trained with, by dotted key.
        name: of the run and of its policy; by default of the time.

    Raises:
        CorrectionsError: no correction was accepted, or another lesson is going on.
        NoPolicyError: no policy is promoted.
        RunConflictError: there is a run of that name.
        RecipeError: an override is wrong.
        RunError: the run cannot go on.
    """
    if not examined.accepted:
        raise CorrectionsError(
            f"there is nothing to learn: no correction was accepted, {len(examined.set_aside)} are set aside"
        )
    record = CorrectionRecord(home)
    before = store.promoted()
    store.verify(before)
    run = name or f"lesson-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if (home / "runs" / run).exists() or store.ids(run):
        raise RunConflictError(f"run {run} already exists: choose another name")
    original, student = recipe_from(before.recipe(), before.run), Student.of(before)
    imitates = isinstance(student.model, Chooser)

    def recipe_with(shown: int) -> Recipe:
        changes = {**_changes(original, shown), **(overrides or {})}
        return recipe_from(before.recipe(), before.run, changes)

    recipe_with(int(imitates))  # wrong overrides are found before the policy is asked, which takes a while
    questions = [one.question() for one in examined.accepted]
    with _aside(record.directory) as aside:
        precision: Precision = "bfloat16" if original.optimisation.precision == "bf16" else "float32"
        (aside / "base").mkdir()
        student.save(aside / "base", precision)
        shown: list[DemonstrationEntry] = []
        if imitates:
            shown = demonstrations(before, original, questions, earlier.train, tools, share, seed)
            if not shown:
                raise CorrectionsError("no path to the answers of these corrections can be played")
        recipe = recipe_with(len(shown))
        _write(aside / "data", questions, earlier)
        directory = Runs(aside / "runs").create(
            recipe.model_copy(update={"base_model": str(aside / "base")}),
            f"{share:g}*{CORRECTIONS}+{1 - share:g}*{EARLIER}",
            SplitLimits(test=0),
            seed,
            run,
        )
        if shown:
            write_entries(directory.demonstrations_path, shown)
        with open_run(directory, tools, aside / "data") as context:
            train(context)
        learned = context.store.newest(run)
        assert learned is not None, "a run that ends has published its versions"
        after = _publish(store, Student.of(learned), learned, before, original, precision)
        _keep_run(directory, home, recipe.model_copy(update={"base_model": original.base_model}))
        taught = record.taught(before)
        new = {one.id: one.teacher for one in examined.accepted if one.id not in taught}
        judgement = compare(before, after, tools, questions, earlier.test, must_answer, new)
        return _conclude(record, store, before, after, examined, earlier_name, judgement)


def _changes(original: Recipe, shown: int) -> Mapping[str, Any]:
    """What a lesson changes in the recipe.

    Args:
        shown: number of demonstrations that are imitated; 0 stands for learning from rewards.
    """
    if not shown:
        rate = _SLOWER * original.optimisation.learning_rate
        return {**_CHANGES, **_BY_REWARDS, "optimisation.learning_rate": rate}
    steps = max(_FEWEST_STEPS, ceil(_EPOCHS * shown / _BY_IMITATION["cold_start"]["batch"]))
    counts = {"cold_start.demonstrations": shown, "cold_start.steps": steps}
    return {**_CHANGES, **_BY_IMITATION, **counts}


@contextmanager
def _aside(parent: Path) -> Iterator[Path]:
    """A directory for one lesson at a time; what lessons have left that died is removed."""
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / _LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CorrectionsError(
                f"another lesson is going on in {parent}: wait until it has ended"
            ) from None
        for left in parent.glob(f"{_ASIDE}*"):
            shutil.rmtree(left, ignore_errors=True)
        with TemporaryDirectory(dir=parent, prefix=_ASIDE) as directory:
            yield Path(directory).absolute()


def _write(data: Path, corrections: Sequence[Question], earlier: Splits) -> None:
    """The data sets of a lesson."""
    chosen = spread(earlier.validation or earlier.train, max(len(corrections), _JUDGED_BY))
    for part, train_on, judge_by in (
        (CORRECTIONS, corrections, corrections),
        (EARLIER, earlier.train, chosen),
    ):
        (data / part).mkdir(parents=True)
        for split, questions in (("train", train_on), ("validation", judge_by), ("test", judge_by)):
            write_questions(data / part / f"{split}.jsonl", questions)


def _publish(
    store: PolicyStore,
    student: Student,
    learned: PolicyVersion,
    before: PolicyVersion,
    recipe: Recipe,
    precision: Precision,
) -> PolicyVersion:
    """Publish what a lesson has learned, as a version that depends on no other."""
    return store.publish(
        learned.run,
        1,
        partial(student.save, precision=precision),
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=recipe.digest(),
        step=learned.manifest.step,
        metrics=learned.manifest.metrics,
        base_model=before.manifest.base_model,
        probe=student.probe(precision),
        calibration=learned.manifest.calibration,
        graphs=before.manifest.graphs,
    )


def _keep_run(directory: RunDirectory, home: Path, recipe: Recipe) -> None:
    """Let the run of a lesson be seen beside all others, without what only resuming it would need."""
    shutil.rmtree(directory.checkpoints_path, ignore_errors=True)
    done = {"state": State.DONE, "recipe": recipe.model_dump(mode="json")}
    directory.write(directory.read().model_copy(update=done))
    (home / "runs").mkdir(parents=True, exist_ok=True)
    put_in_place(directory.path, (home / "runs" / directory.id).absolute())


def _conclude(
    record: CorrectionRecord,
    store: PolicyStore,
    before: PolicyVersion,
    after: PolicyVersion,
    examined: Examination,
    earlier: Earlier,
    judgement: Judgement,
) -> Lesson:
    """Keep the lesson, and promote its result if it may be."""
    lesson = Lesson(
        run=after.run,
        version=after.id,
        began_with=f"{before.run}/{before.id}",
        time=datetime.now(UTC),
        earlier=earlier,
        corrections=tuple(
            TaughtCorrection(id=one.id, by=one.teacher, time=one.time) for one in examined.accepted
        ),
        set_aside=tuple(
            RefusedCorrection(id=out.correction.id, by=out.correction.teacher, reason=out.reason)
            for out in examined.set_aside
        ),
        before=dict(judgement.before),
        after=dict(judgement.after),
        broken=tuple(judgement.broken),
        promoted=False,
    )
    with record.exclusive():
        reasons = judgement.objections()
        if revoked := record.revoked(lesson):
            reasons.append(f"corrections by {', '.join(revoked)} were taken back meanwhile")
        if store.promoted() != before:
            reasons.append("another version was promoted meanwhile")
        lesson = lesson.model_copy(update={"promoted": not reasons, "reason": "; ".join(reasons)})
        record.keep(lesson)  # before the promotion: whoever takes corrections back must find it
        if lesson.promoted:
            store.promote(after.run, after.id)
    return lesson
