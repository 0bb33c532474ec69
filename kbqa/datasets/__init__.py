"""Data sets as questions, and the generated world."""

from kbqa.datasets.catalog import DATASETS, load_dataset
from kbqa.datasets.dataset import Dataset, Graph
from kbqa.datasets.splits import Splits, spread

__all__ = ["DATASETS", "Dataset", "Graph", "Splits", "load_dataset", "spread"]
