"""The cold start of a run: demonstrations, and their imitation, judged by the validation questions."""

from __future__ import annotations

import logging
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from kbqa.cold_start.demonstrations import Demonstration, play_program, prompt_of
from kbqa.cold_start.files import BY_GOLD_PROGRAMS, DemonstrationEntry, read_entries, write_entries
from kbqa.cold_start.imitation import MadeUpNames, epochs, example, under_other_names
from kbqa.cold_start.mining import bounds_for, mine
from kbqa.cold_start.recoveries import recovery
from kbqa.cold_start.withholding import withheld
from kbqa.confidence import Calibration
from kbqa.datasets import Splits
from kbqa.errors import RunError
from kbqa.policies.chooser.model import Chooser
from kbqa.policy_store import PolicyVersion
from kbqa.protocols.form_chooser import FormChoosingProtocol
from kbqa.recipes.beginning import ColdStartSection
from kbqa.runs.context import Context
from kbqa.runs.evaluation import VersionEvaluation
from kbqa.runs.student import Student
from kbqa.training.adapters import has_adapter, merged
from kbqa.training.learner import Learner, begin
from kbqa.training.sft import Example, fine_tune

logger = logging.getLogger(__name__)

_SHOW_EVERY = 10  # steps between two metrics records


def demonstrations(context: Context, questions: Splits) -> list[Demonstration]:
    """The demonstrations of the recipe's cold start, if it has one. Made once, and kept with the run.

    Raises:
        RunError: no path can be played, or the file does not fit the recipe.
        DatasetError: the file cannot be read.
    """
    section, kept = context.recipe.cold_start, context.directory.demonstrations_path
    if section is None:
        return []
    if not kept.is_file():
        found = (
            _played(context, section, questions)
            if section.file is None
            else _read(context, section.file, questions)[: section.demonstrations]
        )
        played = [entry.demonstration for entry in found]
        recovered = _recoveries(context, played, section.recoveries)
        declined = _withheld(context, played, section.withheld)
        values = {
            "source": section.file or f"{section.paths} paths",
            "found": len(found),
            "recoveries": len(recovered),
            "withheld": len(declined),
            "gold_programs": sum(entry.method in BY_GOLD_PROGRAMS for entry in found),
        }
        context.journal.record("demonstrations", values)
        context.journal.keep(demonstrations=values)
        write_entries(kept, [*found, *recovered, *declined])
    return [entry.demonstration for entry in read_entries(kept)]


def _played(context: Context, section: ColdStartSection, questions: Splits) -> list[DemonstrationEntry]:
    """Paths that can be played, mined or gold; those that cannot are left out."""
    protocol, turns = context.recipe.protocol.build(), context.recipe.rollout.max_turns
    asked = questions.cold_start[: section.demonstrations]
    if section.is_mined:
        drawn = {question.id: question for question in (*questions.cold_start, *questions.train)}
        asked = tuple(drawn.values())[: section.demonstrations]
    context.kg_versions(question.kg for question in asked)
    if section.is_mined:
        bounds = bounds_for(protocol, turns)
        asked = tuple(mine(asked, context.graph, bounds, context.record.seed, context.check))
    found = []
    for question in asked:
        context.check()
        played = play_program(question, protocol, context.graph, turns)
        if played is not None:
            found.append(
                DemonstrationEntry(
                    played.demonstration, protocol.name, section.paths, f"{section.paths} path"
                )
            )
    if not found:
        raise RunError(
            f"no {section.paths} path of data set {context.record.dataset} can be played on its graph"
        )
    return found


def _recoveries(
    context: Context, demonstrations: Sequence[Demonstration], share: float
) -> list[DemonstrationEntry]:
    """A share of the demonstrations as recoveries; those that cannot become one are left out."""
    protocol, turns = context.recipe.protocol.build(), context.recipe.rollout.max_turns
    rng = random.Random(f"recoveries/{context.record.seed}")
    found = []
    for one in rng.sample(demonstrations, round(share * len(demonstrations))):
        context.check()
        recovered = recovery(one, demonstrations, protocol, context.graph, turns, rng)
        if recovered is not None:
            found.append(DemonstrationEntry(recovered, protocol.name, "recovery", "recovery"))
    return found


def _withheld(
    context: Context, demonstrations: Sequence[Demonstration], share: float
) -> list[DemonstrationEntry]:
    """A share of the demonstrations on a graph that lacks the answer, where something is left to decline."""
    protocol, turns = context.recipe.protocol.build(), context.recipe.rollout.max_turns
    if not isinstance(protocol, FormChoosingProtocol):
        return []
    rng = random.Random(f"withheld/{context.record.seed}")
    found = []
    for one in rng.sample(demonstrations, round(share * len(demonstrations))):
        context.check()
        declined = withheld(one, protocol, context.graph, turns, rng)
        if declined is not None:
            found.append(DemonstrationEntry(declined, protocol.name, "withheld", "withheld"))
    return found


def _read(context: Context, name: str, questions: Splits) -> list[DemonstrationEntry]:
    """A file's demonstrations with this recipe's prompt, without validation and test questions."""
    path = context.home / "cold_start" / name
    protocol, turns = context.recipe.protocol.build(), context.recipe.rollout.max_turns
    if not path.is_file():
        raise RunError(
            f"{path} does not exist: make it with kbqa cold-start {context.record.dataset} --name "
            f"{name.removesuffix('.jsonl')} --recipe {context.recipe.name}, or skip the cold start "
            "(cold_start=null)"
        )
    held_out = {question.text for question in (*questions.validation, *questions.test)}
    found, passed_over = [], 0
    for entry in read_entries(path):
        if entry.protocol != protocol.name:
            raise RunError(
                f"{path}: its demonstrations are in the dialect {entry.protocol}, and recipe "
                f"{context.recipe.name} speaks {protocol.name}: make one with --recipe {context.recipe.name}"
            )
        demonstration = entry.demonstration
        if demonstration.question.text in held_out:
            passed_over += 1
            continue
        prompt = prompt_of(demonstration.question, protocol, context.tools, turns)
        demonstration = replace(demonstration, passages=(prompt, *demonstration.passages[1:]))
        found.append(replace(entry, demonstration=demonstration))
    if passed_over:
        logger.warning(
            "demonstrations of validation or test questions are left out", extra={"count": passed_over}
        )
    if not found:
        raise RunError(f"{path}: all its questions are validation or test questions of this run")
    return found


class ColdStart:
    """Imitation of demonstrations, with regular evaluations on the validation questions.

    Args:
        questions: training questions provide names of topics; validation questions judge the versions.
        student: what imitates them; it is trained in place.
    """

    _learner: Learner

    def __init__(
        self, context: Context, section: ColdStartSection, questions: Splits, student: Student
    ) -> None:
        self._context, self._section, self._student = context, section, student
        self._train, self._validation = questions.train, questions.validation
        self._best: VersionEvaluation | None = None
        self._looks_since_best = 0
        self._step = self._looked_at = 0
        self._began = time.monotonic()

    def run(self, demonstrations: Sequence[Demonstration]) -> tuple[PolicyVersion, Calibration | None]:
        """The best version by validation F1, and how sure its answers are.

        Raises:
            RunError: every demonstration is too long.
        """
        context, section = self._context, self._section
        rng = random.Random(f"cold_start/{context.record.seed}")
        names = self._names(demonstrations)
        short = self._short_enough(demonstrations)
        in_turn = None if section.epochs is None else epochs(short, section.epochs, rng)

        by_graph: defaultdict[str, list[Demonstration]] = defaultdict(list)
        for one in short:
            by_graph[one.question.kg].append(one)

        def draw(count: int) -> Sequence[Example]:
            if in_turn is not None:
                drawn = list(islice(in_turn, count))
            elif section.graphs is not None and section.graphs < len(by_graph):
                graphs = rng.sample(sorted(by_graph), section.graphs)
                drawn = [rng.choice(by_graph[rng.choice(graphs)]) for _ in range(count)]
            else:
                drawn = rng.choices(short, k=count)
            if section.fresh_names:
                drawn = [under_other_names(one, names, rng) for one in drawn]
            return [self._example(one) for one in drawn]

        config = section.build(len(short))
        context.journal.enter("cold_start", of=config.steps)
        self._learner = begin(
            self._student.model,
            config,
            seed=context.weights_seed,
            ranks=context.ranks,
            base_model=context.recipe.base_model,
        )
        fine_tune(self._learner.imitate, draw, config, self._on_step)
        if self._looked_at != self._step:
            self._look()
        assert self._best is not None
        return context.version(self._best.version), self._best.calibration

    def _short_enough(self, demonstrations: Sequence[Demonstration]) -> Sequence[Demonstration]:
        most = self._section.max_length
        if most is None:
            return demonstrations
        short = [one for one in demonstrations if len(self._example(one).token_ids) <= most]
        if len(short) < len(demonstrations):
            count = len(demonstrations) - len(short)
            logger.warning(
                "some demonstrations are too long and are left out", extra={"count": count, "most": most}
            )
        if not short:
            raise RunError(f"cold_start.max_length: every demonstration has more than {most} tokens")
        return short

    def _example(self, demonstration: Demonstration) -> Example:
        # Observations are cut as in an episode, so that imitation and play read texts of the same length.
        most = self._context.recipe.rollout.max_observation_tokens
        return example(demonstration, self._student.codec, most)

    def _names(self, demonstrations: Sequence[Demonstration]) -> MadeUpNames:
        known = {name for demonstration in demonstrations for name in demonstration.names}
        known |= {topic for question in self._train for topic in question.topic_entities}
        return MadeUpNames(self._student.words(), sorted(known), self._section.known_names)

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
        self._learner.gather()
        student = self._student
        # Only the engines of choosers take an adapter that is not reinforcement learning's own.
        if has_adapter(student.model) and not isinstance(student.model, Chooser):
            student = replace(student, model=merged(student.model))
        version = context.publish(student, step=0, metrics={})
        evaluation = context.evaluate(version, self._validation, "validation")
        if self._best is None or evaluation.f1 > self._best.f1:
            self._best, self._looks_since_best = evaluation, 0
        else:
            self._looks_since_best += 1
        protected = {self._best.version, *context.journal.results.get("versions", {}).values()}
        context.store.retain(context.run, keep=1, protect=protected)
