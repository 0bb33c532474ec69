"""Measures of the quality and cost of answers.

A measure of a question has a value and a weight; a metric is the sum of values over all questions,
divided by the sum of weights. Most weights are 1, so that the metric is a mean. Executability weights
a question by its number of queries. A question without a verdict has no weight in accuracy, and a
question without an answer has no weight in `supported`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.answers import answer_set, em_set, f1, hit_any, hits1_first, rhits1
from kbqa.evidence import unite
from kbqa.gold import Comparison, compare
from kbqa.judges import Verdict
from kbqa.kg.actions import ErrorCode
from kbqa.rewards.kg_r1 import retrieval
from kbqa.trajectory import ExecutedAction, Question, Trajectory


class Measure(NamedTuple):
    """A question's contribution to a metric."""

    value: float
    weight: float = 1.0


Measures = Mapping[str, Measure]


@dataclass(frozen=True, slots=True)
class EvaluationMetric:
    """The description of a metric.

    Attributes:
        title: name of the metric in reports.
        about: definition and source.
        is_share: whether the metric is a fraction of 1 for which more is better; else it is a count.
        is_binary: whether each question's value is 0 or 1, so that McNemar's test applies.
        papers: what papers call it, where that is another name or one with several meanings.
    """

    title: str
    about: str
    is_share: bool = True
    is_binary: bool = False
    papers: str = ""

    @property
    def meaning(self) -> str:
        """The definition, with what papers call the metric."""
        return "; in papers: ".join(filter(None, (self.about, self.papers)))


METRICS: Mapping[str, EvaluationMetric] = {
    "hits@1": EvaluationMetric("Hits@1", "share of questions whose first answer is gold", is_binary=True),
    "f1": EvaluationMetric(
        "F1", "harmonic mean of precision and recall over answer sets, mean over questions", papers="all: F1"
    ),
    "em_set": EvaluationMetric(
        "Exact match",
        "share of questions whose answers equal the gold answers",
        is_binary=True,
        papers="KBQA-R1: EM",
    ),
    "hit_any": EvaluationMetric(
        "Hit",
        "share of questions with a gold answer",
        is_binary=True,
        papers="KG-R1: Hit@1; KnowCoder-A1: EM; ISP-KGR: Hit",
    ),
    "rhits1": EvaluationMetric(
        "RHits@1", "probability that a randomly chosen answer is gold", papers="KnowCoder-A1: RHits@1"
    ),
    "accuracy": EvaluationMetric(
        "Accuracy",
        "share of answers that the judge accepts (section 4.5)",
        is_binary=True,
        papers="Learning-to-Refine: accuracy",
    ),
    "judged_f1": EvaluationMetric(
        "Judged F1", "F1 with the gold answers that the judge found (KG-R1, appendix C.1)"
    ),
    "executability": EvaluationMetric(
        "Executability", "share of all queries that ran (Learning-to-Refine, section 4.5)"
    ),
    "retrieval": EvaluationMetric(
        "Retrieval rate", "share of questions for which a gold answer was retrieved (KG-R1, table 3)"
    ),
    "supported": EvaluationMetric(
        "Supported",
        "share of a question's answers whose evidence the graph confirms; mean over answered questions",
    ),
    "set_f1": EvaluationMetric(
        "Set F1", "F1 of the values that the query behind the answers finds (TEXT2SPARQL; see text2sparql.py)"
    ),
    "answered": EvaluationMetric("Answered", "share of questions whose episode ended with an answer"),
    "turns": EvaluationMetric("Turns", "per run", is_share=False),
    "llm_calls": EvaluationMetric(
        "LLM calls", "per question, all runs (KBQA-R1, table VIII)", is_share=False
    ),
    "generated_tokens": EvaluationMetric(
        "Generated tokens", "per question, all runs (KG-R1, table 1)", is_share=False
    ),
    "total_tokens": EvaluationMetric(
        "Total tokens", "read and written, each counted once (KG-R1, table 1)", is_share=False
    ),
}
"""Every metric, in the order in which a report shows them."""


def given_answers(runs: Sequence[Trajectory]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The answers of a run, or the union of several runs (KG-R1, 4.1); and the ids of each."""
    if len(runs) == 1:
        return runs[0].answers, runs[0].answer_ids
    united = unite(runs)
    return [answer.text for answer in united], [answer.ids for answer in united]


def named_answers(question: Question, runs: Sequence[Trajectory]) -> Comparison:
    """The answers of one or several runs, beside the gold answers that they come nearest to."""
    return compare(question, *given_answers(runs))


def measure(
    question: Question,
    runs: Sequence[Trajectory],
    verdict: Verdict | None,
    supported: float | None = None,
    set_f1: float | None = None,
) -> dict[str, Measure]:
    """The measures of a question, by metric.

    Args:
        runs: one, or several whose answers are merged.
        verdict: of the judge on the answers; None if there was none.
        supported: `kbqa.evidence.supported_share` of the answers; None if there are no answers, or no graph
            could be asked.
        set_f1: `kbqa.evaluation.text2sparql.set_f1_of` the runs; None if it is not measured.
    """
    answers, gold = named_answers(question, runs)
    queries = [action for run in runs for action in run.actions]
    turns = [len(run.turns) for run in runs]
    judged = 0.0 if verdict is None else 1.0
    return {
        "hits@1": Measure(hits1_first(answers, gold)),
        "f1": Measure(f1(answers, gold)),
        "em_set": Measure(em_set(answers, gold)),
        "hit_any": Measure(hit_any(answers, gold)),
        "rhits1": Measure(rhits1(answers, gold)),
        "accuracy": Measure(float(verdict is not None and verdict.correct), judged),
        "judged_f1": Measure(_judged_f1(answers, verdict), judged),
        "executability": Measure(sum(map(was_executed, queries)), len(queries)),
        "retrieval": Measure(max(retrieval(question, run) for run in runs)),
        "supported": Measure(supported or 0.0, float(supported is not None)),
        "set_f1": Measure(set_f1 or 0.0, float(set_f1 is not None)),
        "answered": Measure(float(any(run.answers for run in runs))),
        "turns": Measure(sum(turns) / len(runs)),
        # Turns that no model wrote, such as the ranking baseline's, have no policy version.
        "llm_calls": Measure(sum(map(_llm_calls, runs))),
        "generated_tokens": Measure(sum(run.generated_tokens for run in runs)),
        "total_tokens": Measure(sum(map(total_tokens, runs))),
    }


def _llm_calls(run: Trajectory) -> int:
    beside = 0 if run.search is None else run.search.turns
    return beside + sum(bool(turn.policy_version) for turn in run.turns)


def was_executed(action: ExecutedAction) -> bool:
    """Whether a query was valid and ran to its end; an empty result counts as executed."""
    return action.code in (None, ErrorCode.NO_RESULTS)


def total_tokens(trajectory: Trajectory) -> int:
    """Length of the whole episode in tokens; for chat messages, as counted by the server."""
    if trajectory.token_ids:
        return len(trajectory.token_ids)
    return max((turn.end for turn in trajectory.turns), default=0)


def _judged_f1(answers: Sequence[str], verdict: Verdict | None) -> float:
    """F1 by the judge: recall is the share of gold answers found; each counts as one correct given answer."""
    if verdict is None or not any(verdict.found):
        return 0.0
    found, given = sum(verdict.found), max(len(answer_set(answers)), 1)
    precision, recall = min(1.0, found / given), found / len(verdict.found)
    return 2 * precision * recall / (precision + recall)
