"""Data sets as questions, and the generated world."""

from kbqa.datasets.catalog import DATASETS, Dataset, load_dataset
from kbqa.datasets.splits import Splits, spread

__all__ = ["DATASETS", "Dataset", "Splits", "load_dataset", "spread"]
