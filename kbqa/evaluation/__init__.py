"""Evaluation: how well a policy answers, how certain the figures are, and how its episodes failed."""

from kbqa.evaluation.comparison import PairedComparison, compare, read_earlier
from kbqa.evaluation.evaluation import Evaluation, Record, evaluate
from kbqa.evaluation.measures import METRICS

__all__ = ["METRICS", "PairedComparison", "Evaluation", "Record", "compare", "evaluate", "read_earlier"]
