"""Evaluates the answers of a policy to the questions of a data set."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from math import comb
from statistics import fmean
from typing import Any, NamedTuple

from kbqa.confidence import Choices, choices_of, is_right
from kbqa.errors import DatasetError, JudgeUnavailableError
from kbqa.evaluation.failures import AnswerOutcome, Error, FailureClass, error, failure, outcome
from kbqa.evaluation.measures import METRICS, Measures, given_answers, measure, named_answers
from kbqa.evaluation.significance import Interval, bootstrap
from kbqa.evaluation.text2sparql import set_f1_of
from kbqa.evidence import Claims, confirmed, supported_share
from kbqa.gold import judged
from kbqa.judges import Judge, Verdict
from kbqa.kg.actions import GraphTools
from kbqa.trajectory import Question, Status, Trajectory

logger = logging.getLogger(__name__)

_AT_A_TIME = 16  # questions that are judged at once, with their evidence
_GIVEN_UP_AFTER = 3  # consecutive cases without a verdict

BREAKDOWNS: Mapping[str, Callable[[Question], str]] = {
    "hops": lambda question: str(question.hops or ""),
    "operation": lambda question: question.operation,
    "level": lambda question: question.level,
    "part": lambda question: question.part,
}
"""Breakdowns of results: name → the value of a question, "" if it is unknown."""


@dataclass(frozen=True, slots=True)
class Record:
    """A question and its results.

    Attributes:
        answers: of all runs, in the form of the gold answers.
        measures: of the union of the runs.
        each: measures of every single run.
        verdict: of the judge on `answers`; None if there was none.
        status: how the first run ended.
        outcome, failure, error: classes of the first run; see `kbqa.evaluation.failures`.
        choices: of the first run; None if its engine reports no probabilities.
    """

    question: Question
    answers: tuple[str, ...]
    measures: Measures
    each: tuple[Measures, ...]
    verdict: Verdict | None
    status: Status
    outcome: AnswerOutcome
    failure: FailureClass | None
    error: Error | None
    choices: Choices | None = None

    @property
    def is_right(self) -> bool:
        """Whether the first run's answers are exactly the gold answers."""
        return is_right(self.each[0]["f1"].value)

    @property
    def group(self) -> str:
        """See `cluster_of`."""
        return cluster_of(self.question)

    def to_json(self) -> dict[str, Any]:
        """The record as JSON, without trajectories. A measure without weight is null."""
        question = self.question
        return {
            "id": question.id,
            "group": self.group,
            "question": question.text,
            "gold": list(question.answers),
            **({"variants": [list(gold) for gold in question.variants]} if question.variants else {}),
            "answers": list(self.answers),
            **{name: of(question) for name, of in BREAKDOWNS.items()},
            "status": self.status.value,
            "outcome": self.outcome.value,
            "failure": self.failure and self.failure.value,
            "error": self.error and self.error.value,
            # The last digits depend on what else was in a batch.
            "log_likelihood": None if self.choices is None else round(self.choices.total, 3),
            "measures": {name: m.value / m.weight if m.weight else None for name, m in self.measures.items()},
        }


def cluster_of(question: Question) -> str:
    """What a question asks for, independent of its wording: topics and gold path.

    Questions of one cluster are not independent. A question without a gold path is its own cluster.
    """
    if not question.path:
        return question.id
    path = " / ".join(f"{'^' if hop.inverse else ''}{hop.relation}" for hop in question.path)
    return f"{', '.join(sorted(question.topic_entities))} : {path}"


class PlayedExample(NamedTuple):
    """A question with its trajectories."""

    record: Record
    runs: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Metrics over questions; metrics without any weight are left out.

    Attributes:
        groups: number of groups of questions; see `Record.group`.
        metrics: by the names of `METRICS`.
        intervals: 95 %, by bootstrap over the groups.
    """

    questions: int
    groups: int
    metrics: dict[str, float]
    intervals: dict[str, Interval]

    def to_json(self) -> dict[str, Any]:
        return {
            "metrics": self.metrics,
            "questions": self.questions,
            "groups": self.groups,
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of an evaluation.

    Attributes:
        records: one per question, in the order in which they were asked.
        examples: some records of every kind, with their trajectories.
        about: policy, data set and so on, as JSON.
    """

    records: tuple[Record, ...]
    examples: tuple[PlayedExample, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> Summary:
        """The summary over all questions, of the union of their runs."""
        return summarise([record.measures for record in self.records], self._groups)

    def pass_at(self, k: int) -> float:
        """Pass@K: the probability that one of `k` runs, drawn from those played, has a gold answer.

        The unbiased estimate 1 - C(n-c, k) / C(n, k) of Chen et al. (2021), where c of n runs have one; mean
        over questions.
        """
        hits = [sum(run["hit_any"].value for run in record.each) for record in self.records]
        n = len(self.records[0].each)
        return fmean(1 - comb(n - round(c), k) / comb(n, k) for c in hits)

    @property
    def _groups(self) -> list[str]:
        return [record.group for record in self.records]

    def to_json(self) -> dict[str, Any]:
        """`{"metrics": {"f1": …, "hits@1": …, …}, "questions": n, …}`: fractions of 1, and the details."""
        runs = len(self.records[0].each)
        single = [
            summarise([record.each[run] for record in self.records], self._groups) for run in range(runs)
        ]
        return {
            **self.summary.to_json(),
            "unjudged": sum(record.verdict is None for record in self.records),
            "runs": [summary.to_json() for summary in single] if runs > 1 else [],
            "pass_at": {str(k): self.pass_at(k) for k in range(1, runs + 1)} if runs > 1 else {},
            "breakdowns": {name: self._breakdown(of) for name, of in BREAKDOWNS.items()},
            "classes": {
                "outcome": _shares(AnswerOutcome, (record.outcome for record in self.records)),
                "failure": _shares(FailureClass, (record.failure for record in self.records)),
                "error": _shares(Error, (record.error for record in self.records)),
            },
            **self.about,
            "records": [record.to_json() for record in self.records],
        }

    def _breakdown(self, of: Callable[[Question], str]) -> dict[str, Any]:
        """A summary for each value; empty if the value is unknown for all questions."""
        parts: dict[str, list[Record]] = {}
        for record in self.records:
            parts.setdefault(of(record.question), []).append(record)
        if set(parts) == {""}:
            return {}
        return {
            value or "unknown": summarise(
                [record.measures for record in part], [record.group for record in part]
            ).to_json()
            for value, part in sorted(parts.items())
        }


def evaluate(
    played: Iterable[tuple[Question, Sequence[Trajectory]]],
    judge: Judge,
    about: Mapping[str, Any] | None = None,
    *,
    tools: GraphTools | None = None,
    examples: int = 400,
    text2sparql: bool = False,
) -> Evaluation:
    """Judge and measure runs while they are played.

    Args:
        played: questions, each with one run or the same number of runs.
        tools: check with each question's graph whether it supports the answers, at once for all answers of
            a question; without them, `supported` is left out.
        examples: maximum questions whose trajectories are kept, to bound memory.
        text2sparql: also measure `set_f1`, of questions with a gold query; needs tools.

    Raises:
        DatasetError: there are no questions.
        GraphNotFoundError, GraphUnavailableError: as `GraphTools.execute`.
    """
    panel, gallery = _Panel(judge), Gallery(examples)
    set_f1 = partial(set_f1_of, tools=tools) if text2sparql and tools is not None else _unmeasured
    records: list[Record] = []
    cases = iter(played)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        while batch := list(islice(cases, _AT_A_TIME)):
            found = pool.map(partial(_record, panel, tools, set_f1), batch)
            for record, (_, runs) in zip(found, batch, strict=True):
                records.append(record)
                gallery.offer(record, runs)
    if not records:
        raise DatasetError("there are no questions to evaluate on")
    return Evaluation(tuple(records), tuple(gallery.chosen()), about or {})


def summarise(measures: Sequence[Measures], groups: Sequence[str]) -> Summary:
    """Compute the metrics from the measures of questions; `groups` has the group of each question."""
    metrics: dict[str, float] = {}
    intervals: dict[str, Interval] = {}
    for name in METRICS:
        values = [one[name].value for one in measures]
        weights = [one[name].weight for one in measures]
        interval = bootstrap(values, weights, groups=groups)
        if interval is not None:
            metrics[name], intervals[name] = sum(values) / sum(weights), interval
    return Summary(len(measures), len(set(groups)), metrics, intervals)


class Gallery:
    """A bounded collection of examples of every kind, drawn at random within each kind.

    A kind is a combination of outcome, failure, error and number of hops.

    Args:
        most: maximum number of examples.
        seed: the same seed draws the same examples.
    """

    def __init__(self, most: int, seed: int = 0) -> None:
        self._most, self._rng = most, random.Random(f"examples/{seed}")
        self._room = max(1, most // 3)  # per kind, to leave room for the other kinds
        self._kinds: dict[tuple[object, ...], list[PlayedExample]] = {}
        self._offered: Counter[tuple[object, ...]] = Counter()

    def offer(self, record: Record, runs: Sequence[Trajectory]) -> None:
        """Keep or drop an example (reservoir sampling)."""
        kind = (record.outcome, record.failure, record.error, record.question.hops)
        kept = self._kinds.setdefault(kind, [])
        self._offered[kind] += 1
        place = len(kept) if len(kept) < self._room else self._rng.randrange(self._offered[kind])
        kept[place : place + 1] = [PlayedExample(record, tuple(runs))] if place < self._room else []

    def chosen(self) -> list[PlayedExample]:
        """The chosen examples: one of each kind in turn, as long as there is room."""
        kinds = [iter(kept) for _, kept in sorted(self._kinds.items(), key=str)]
        turns = zip_longest(*kinds)
        return [example for turn in turns for example in turn if example is not None][: self._most]


class _Panel:
    """A judge that is no longer asked after several consecutive cases without a verdict."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._silent = 0

    def verdict(self, question: Question, runs: Sequence[Trajectory]) -> Verdict | None:
        if self._silent >= _GIVEN_UP_AFTER:
            return None
        try:
            verdict = judged(self._judge.verdict, question, *given_answers(runs), runs)
        except JudgeUnavailableError as error:
            self._silent += 1
            logger.warning("the judge gave no verdict", extra={"question": question.id, "reason": str(error)})
            return None
        self._silent = 0
        return verdict


class _Support:
    """The share of a question's answers that the graph supports; claims that runs share are checked once."""

    def __init__(self, question: Question, tools: GraphTools | None) -> None:
        self._topics = frozenset(question.topic_entities)
        self._claims = None if tools is None else Claims(tools, question.kg, question.graph)

    def share(self, runs: Sequence[Trajectory]) -> float | None:
        """The share for the union of runs; None if there are no answers, or the graph could not be asked."""
        if self._claims is None:
            return None
        share = supported_share(confirmed(runs, self._topics, self._claims))
        return share if self._claims.unreached is None else None


def _unmeasured(question: Question, runs: Sequence[Trajectory]) -> None:
    return None


def _record(
    panel: _Panel,
    tools: GraphTools | None,
    set_f1: Callable[[Question, Sequence[Trajectory]], float | None],
    case: tuple[Question, Sequence[Trajectory]],
) -> Record:
    question, runs = case
    first, answers = runs[0], named_answers(question, runs).answers
    verdict, support = panel.verdict(question, runs), _Support(question, tools)
    whole = measure(question, runs, verdict, support.share(runs), set_f1(question, runs))
    each = [whole]
    if len(runs) > 1:
        each = [
            measure(
                question,
                [run],
                panel.verdict(question, [run]),
                support.share([run]),
                set_f1(question, [run]),
            )
            for run in runs
        ]
    alone = each[0]
    correct = alone["accuracy"] if alone["accuracy"].weight else alone["em_set"]
    return Record(
        question=question,
        answers=tuple(answers),
        measures=whole,
        each=tuple(each),
        verdict=verdict,
        status=first.status,
        outcome=outcome(first, hit=alone["hit_any"].value == 1),
        failure=failure(first, correct=correct.value == 1),
        error=error(question, first, f1=alone["f1"].value),
        choices=choices_of(first),
    )


def _shares(
    classes: type[AnswerOutcome] | type[FailureClass] | type[Error], found: Iterable[str | None]
) -> dict[str, Any]:
    """Number of questions in each class."""
    counts = Counter(found)
    return {member.value: counts[member] for member in classes}
