"""The phases of a run before reinforcement learning: prepare, warm_up, cold_start.

Each ends with a published version, whose id is kept in the journal's results. A run
that is resumed continues after the last phase that it finished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kbqa.cold_start.mining import blind
from kbqa.datasets import Splits, load_dataset, spread
from kbqa.datasets.gold import gold_form_of, gold_namer
from kbqa.errors import DatasetError, RunError
from kbqa.policies.chooser.model import Chooser
from kbqa.policy_store import PolicyVersion
from kbqa.recipes.beginning import SmallPolicySection
from kbqa.runs.cold_start import ColdStart, demonstrations
from kbqa.runs.context import Context
from kbqa.runs.judged import JudgedHeader
from kbqa.runs.student import Student, tokenizer_texts
from kbqa.runs.transcripts import judged_question
from kbqa.training.adapters import add_adapter
from kbqa.trajectory import Question

logger = logging.getLogger(__name__)

_VALIDATION = 120  # questions taken out of the training set of a data set without validation questions
_SHOW_EVERY = 10  # steps between two metrics records


@dataclass(frozen=True, slots=True)
class Material:
    """What a run learns from.

    Attributes:
        kgs: names of the graphs.
        triples: reads those of the graphs, as their files write them.
        questions: in splits, cut to the run's limits.
        shares: of a mixture, by part; see `kbqa.datasets.Dataset`.
    """

    kgs: tuple[str, ...]
    triples: Callable[[], Iterable[str]]
    questions: Splits
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def judging(self) -> str:
        """The split that the phases are judged by."""
        return "test" if self.questions.test else "validation"

    def judge(self, context: Context, name: str, version: PolicyVersion) -> None:
        """Evaluate what a phase has made, and keep the result under its name: base, cold_start or rl."""
        questions: tuple[Question, ...] = getattr(self.questions, self.judging)
        evaluation = context.evaluate(version, questions, self.judging)
        context.directory.judged.write(
            name,
            JudgedHeader(version=evaluation.version, split=self.judging),
            [
                judged_question(question, group, with_turns=context.traces > 0)
                for question, group in zip(questions, evaluation.groups, strict=True)
            ],
        )
        results = context.journal.results
        context.journal.keep(
            versions={**results.get("versions", {}), name: evaluation.version},
            f1={**results.get("f1", {}), name: evaluation.f1},
            f1_by_hops={**results.get("f1_by_hops", {}), name: evaluation.f1_by_hops},
            judged_by={"split": self.judging, "questions": evaluation.questions},
        )
        if evaluation.f1_by_part:
            by_part = {**results.get("f1_by_part", {}), name: evaluation.f1_by_part}
            context.journal.keep(f1_by_part=by_part)


def prepare(context: Context) -> Material:
    """Read the questions of the data set that suit the recipe, and make sure that its graphs are there.

    If the recipe mines paths, the gold programs are removed from the questions that the run learns from.
    The names of the graphs are kept in the journal's results.

    Raises:
        DatasetError: the data set cannot be read.
        RunError: a graph is not loaded.
    """
    context.journal.enter("prepare")
    record, limits = context.record, context.record.limits
    form = gold_form_of(context.recipe.protocol.build())
    dataset = load_dataset(record.dataset, record.seed, context.data, answers=form)
    kgs = tuple(graph.name for graph in dataset.graphs)
    context.kg_versions(kgs)
    context.journal.keep(graphs=kgs)
    suitable = dataset.splits.only(context.recipe.questions.suit)
    cold_start = context.recipe.cold_start
    if cold_start is not None and cold_start.is_mined:
        suitable = replace(
            suitable,
            cold_start=tuple(map(blind, suitable.cold_start)),
            train=tuple(map(blind, suitable.train)),
        )
    if not suitable.validation:
        count = limits.validation or min(_VALIDATION, len(suitable.train) // 10)
        suitable = suitable.with_validation(count, record.seed)
        logger.info(
            "the data set has no validation questions, so some are taken out of the training set",
            extra={"dataset": record.dataset, "count": len(suitable.validation)},
        )
        context.journal.keep(validation_from_train=len(suitable.validation))
    questions = replace(
        suitable,
        train=suitable.train[: limits.train],
        validation=suitable.validation[: limits.validation],
        test=spread(suitable.test, limits.test),
    )
    for split in ("train", "validation", "test"):
        if not getattr(questions, split) and getattr(limits, split) != 0:
            raise DatasetError(f"data set {record.dataset} has no {split} questions for this recipe")
    for part in dataset.shares:
        if not any(question.part == part for question in questions.train):
            raise DatasetError(
                f"data set {record.dataset} has no train questions of its part {part} for this recipe: "
                "leave the part out"
            )
    questions = questions.map(gold_namer(questions.all, context.tools, record.dataset))
    return Material(kgs, dataset.graph_lines, questions, dataset.shares)


def base_version(context: Context, material: Material) -> PolicyVersion:
    """The policy before any training on the task, evaluated; created unless it exists."""
    known = context.journal.results.get("versions", {}).get("base")
    if known is not None:
        return context.version(known)
    small = context.recipe.small_policy
    if context.recipe.base_model is not None:
        tags = context.recipe.protocol.build().tags
        student = Student.pretrained(
            context.recipe.base_model,
            tags,
            context.weights_seed,
            chat_template=context.recipe.chat_template,
            chooser_head=context.recipe.chooser_head,
        )
        adapter = context.recipe.optimisation.lora
        if adapter is not None and not isinstance(student.model, Chooser):
            # An engine that holds the base takes adapters alone, so the first version is one, too.
            add_adapter(student.model, adapter.build(), context.weights_seed)
    elif small is not None:
        student = _from_nothing(context, material, small)
    else:
        raise RunError(f"recipe {context.recipe.name} has neither base_model nor small_policy")
    return _conclude(context, "base", student, material)


def cold_started_version(context: Context, material: Material, base: PolicyVersion) -> PolicyVersion:
    """The base after its cold start (if any), evaluated; created unless it exists."""
    known = context.journal.results.get("versions", {}).get("cold_start")
    if known is not None:
        return context.version(known)
    section = context.recipe.cold_start
    if section is None:
        return base
    context.journal.enter("cold_start")
    found = demonstrations(context, material.questions)
    best, calibration = ColdStart(context, section, material.questions, Student.load(base.path)).run(found)
    version = context.publish_again(best, calibration)
    material.judge(context, "cold_start", version)
    return version


def _from_nothing(context: Context, material: Material, small: SmallPolicySection) -> Student:
    """A small policy with random weights, after the copying warm-up if the recipe has one."""
    seed, warm_up = context.weights_seed, small.warm_up
    context.journal.enter("warm_up", of=0 if warm_up is None else warm_up.steps)
    found = demonstrations(context, material.questions)
    # Without copying, the tokenizer need not spell the names of the graph.
    triples = () if warm_up is None else material.triples()
    texts = tokenizer_texts(triples, found, material.questions.train)
    student = Student.fresh(small.build(), texts, context.recipe.protocol.build().tags, seed)
    if warm_up is None:
        return student

    def on_step(step: int, loss: float) -> None:
        context.check()
        context.journal.advance(step)
        if step % _SHOW_EVERY == 0:
            context.journal.record("step", {"loss": loss}, step)

    if not student.warm_up(warm_up.build(), seed, on_step):
        logger.warning("the copying warm-up ended before the model had learned to copy: give it more steps")
    return student


def _conclude(context: Context, name: str, student: Student, material: Material) -> PolicyVersion:
    """Publish what a phase has made, and judge it."""
    version = context.publish(student, step=0, metrics={})
    material.judge(context, name, version)
    return version
