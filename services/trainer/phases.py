"""The phases of a run before reinforcement learning: prepare, warm_up, cold_start.

Each ends with a published version, whose id is kept in the journal's results. A run
that is resumed goes on behind the last phase that it finished.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from kbqa.cold_start.demonstrations import Demonstration, demonstrate
from kbqa.cold_start.imitation import draw_examples
from kbqa.datasets import Splits, load_dataset
from kbqa.errors import DatasetError, RunError
from kbqa.policy_store import PolicyVersion
from kbqa.recipes.beginning import ColdStartSection, SmallPolicySection
from kbqa.training.copying import warm_up
from kbqa.training.sft import Example, fine_tune
from kbqa.trajectory import Question
from services.trainer.context import Context
from services.trainer.evaluation import Evaluation
from services.trainer.student import Student

logger = logging.getLogger(__name__)

_TOKENIZER_QUESTIONS = 2000  # texts of training questions that a new tokenizer learns from
_TOKENIZER_TRIPLES = 20_000  # likewise, of the graph: a policy has to spell its names
_SHOW_EVERY = 10  # steps of warm-up and cold start between two metrics records


@dataclass(frozen=True, slots=True)
class Material:
    """What a run learns from.

    Attributes:
        kg: name of the graph.
        triples: some of the graph's, as its file writes them.
        questions: in splits, cut to the run's limits.
    """

    kg: str
    triples: tuple[str, ...]
    questions: Splits


def prepare(context: Context) -> Material:
    """Read the questions of the data set that suit the recipe, and make sure that its graph is there.

    Raises:
        DatasetError: the data set cannot be read.
        RunError: its graph is not loaded.
    """
    context.journal.enter("prepare")
    record, limits = context.record, context.record.limits
    dataset = load_dataset(record.dataset, record.seed, context.settings.data)
    context.kg_version(dataset.kg)
    suitable = dataset.splits.only(context.recipe.questions.suit)
    questions = replace(
        suitable,
        train=suitable.train[: limits.train],
        validation=suitable.validation[: limits.validation],
        test=suitable.test[: limits.test],
    )
    for split in ("train", "validation", "test"):
        if not getattr(questions, split):
            raise DatasetError(f"data set {record.dataset} has no {split} questions for this recipe")
    return Material(dataset.kg, tuple(islice(dataset.graph_lines(), _TOKENIZER_TRIPLES)), questions)


def base_version(context: Context, material: Material) -> PolicyVersion:
    """The policy before it has learned anything of the task, evaluated; made unless it is there."""
    known = context.journal.results.get("versions", {}).get("base")
    if known is not None:
        return context.version(known)
    small = context.recipe.small_policy
    if context.recipe.base_model is not None:
        student = Student.pretrained(context.recipe.base_model)
    elif small is not None:
        student = _warmed_up(context, material, small)
    else:
        raise RunError(f"recipe {context.recipe.name} has neither base_model nor small_policy")
    return _conclude(context, "base", student, material)


def cold_started_version(context: Context, material: Material, base: PolicyVersion) -> PolicyVersion:
    """The base after its cold start, evaluated; made unless it is there. No cold start: the base."""
    known = context.journal.results.get("versions", {}).get("cold_start")
    if known is not None:
        return context.version(known)
    section = context.recipe.cold_start
    if section is None:
        return base
    context.journal.enter("cold_start", of=section.steps)
    demonstrations = _demonstrations(context, material, section.demonstrations)
    course = _ColdStart(context, section, material.questions.validation, Student.load(base.path))
    best = course.run(demonstrations)
    # Workers take the newest version, so the best one has to become that again.
    return _conclude(context, "cold_start", Student.load(best.path), material)


def _warmed_up(context: Context, material: Material, small: SmallPolicySection) -> Student:
    """A small policy that has learned to copy, and nothing else."""
    context.journal.enter("warm_up", of=small.warm_up.steps)
    tags = context.recipe.protocol.build().tags
    seed = context.record.seed
    student = Student.fresh(small.build(), _texts(context, material), tags, seed)
    specials = student.tokenizer.get_added_tokens_decoder()

    def on_step(step: int, loss: float) -> None:
        context.check()
        context.journal.advance(step)
        if step % _SHOW_EVERY == 0:
            context.journal.record("step", {"loss": loss}, step)

    vocabulary = range(max(specials) + 1, student.tokenizer.get_vocab_size())
    if not warm_up(student.model, vocabulary, small.warm_up.build(), seed, on_step):
        logger.warning("the copying warm-up ended before it had learned to copy: give it more steps")
    return student


def _texts(context: Context, material: Material) -> Iterator[str]:
    """What a new tokenizer learns from: the graph, demonstrations, and questions without their answers."""
    yield from material.triples
    section = context.recipe.cold_start
    count = section.demonstrations if section is not None else 0
    for demonstration in _demonstrations(context, material, count):
        for passage in demonstration.passages:
            yield from (segment.text for segment in passage.segments)
    yield from (question.text for question in material.questions.train[:_TOKENIZER_QUESTIONS])


def _demonstrations(context: Context, material: Material, most: int) -> list[Demonstration]:
    """Gold programs that can be played; those that cannot are left out."""
    protocol, turns = context.recipe.protocol.build(), context.recipe.rollout.max_turns
    context.kg_version(material.kg)
    found = []
    for question in material.questions.cold_start[:most]:
        context.check()
        demonstration = demonstrate(question, protocol, context.tools, turns)
        if demonstration is not None:
            found.append(demonstration)
    if most and not found:
        raise RunError(f"no gold program of data set {context.record.dataset} can be played on its graph")
    logger.info("demonstrations played", extra={"found": len(found)})
    return found


def _conclude(context: Context, name: str, student: Student, material: Material) -> PolicyVersion:
    """Publish what a phase has made, evaluate it on the test questions, and keep the result."""
    version = context.publish(student, step=0, metrics={})
    evaluation = context.evaluate(version, material.questions.test, "test")
    keep_result(context, name, evaluation)
    return version


def keep_result(context: Context, name: str, evaluation: Evaluation) -> None:
    """Keep a test result under the name of what was evaluated: base, cold_start or rl."""
    results = context.journal.results
    context.journal.keep(
        versions={**results.get("versions", {}), name: evaluation.version},
        f1={**results.get("f1", {}), name: evaluation.f1},
        f1_by_hops={**results.get("f1_by_hops", {}), name: evaluation.f1_by_hops},
    )


class _ColdStart:
    """Imitation of demonstrations, with a look at the validation questions now and then."""

    def __init__(
        self, context: Context, section: ColdStartSection, validation: Sequence[Question], student: Student
    ) -> None:
        self._context, self._section, self._student = context, section, student
        self._validation = tuple(validation)
        self._best: Evaluation | None = None
        self._looks_since_best = 0
        self._step = self._looked_at = 0
        self._began = time.monotonic()

    def run(self, demonstrations: Sequence[Demonstration]) -> PolicyVersion:
        """The best version by validation F1."""
        context = self._context
        rng = random.Random(f"cold_start/{context.record.seed}")
        codec, words = self._student.codec, self._student.words()

        def draw(count: int) -> Sequence[Example]:
            return draw_examples(demonstrations, count, codec, words, rng)

        fine_tune(self._student.model, draw, self._section.build(), self._on_step)
        if self._looked_at != self._step:
            self._look()
        assert self._best is not None
        return context.version(self._best.version)

    def _on_step(self, step: int, loss: float) -> bool:
        context, section = self._context, self._section
        self._step = step
        context.check()
        context.journal.advance(step)
        if step % _SHOW_EVERY == 0:
            context.journal.record("step", {"loss": loss}, step)
        late = section.max_seconds is not None and time.monotonic() - self._began > section.max_seconds
        if step % section.validate_every == 0:
            self._look()
        return late or self._looks_since_best >= section.patience

    def _look(self) -> None:
        context = self._context
        self._looked_at = self._step
        version = context.publish(self._student, step=0, metrics={})
        evaluation = context.evaluate(version, self._validation, "validation")
        if self._best is None or evaluation.f1 > self._best.f1:
            self._best, self._looks_since_best = evaluation, 0
        else:
            self._looks_since_best += 1
        protected = {self._best.version, *context.journal.results.get("versions", {}).values()}
        context.store.retain(context.run, keep=1, protect=protected)
