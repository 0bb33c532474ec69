"""Evaluation: how well a policy answers, how sure that is, and what became of the rest."""

from kbqa.evaluation.comparison import PairedComparison, compare, read_earlier
from kbqa.evaluation.evaluation import Evaluation, Record, evaluate
from kbqa.evaluation.measures import METRICS

__all__ = ["METRICS", "PairedComparison", "Evaluation", "Record", "compare", "evaluate", "read_earlier"]
