"""Evaluation: how well a policy answers, how sure that is, and what became of the rest."""

from kbqa.evaluation.comparison import Comparison, compare, read_earlier
from kbqa.evaluation.evaluation import Evaluation, Record, evaluate
from kbqa.evaluation.measures import METRICS

__all__ = ["METRICS", "Comparison", "Evaluation", "Record", "compare", "evaluate", "read_earlier"]
