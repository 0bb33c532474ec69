"""Questions from a loaded graph alone: verified, with answers and programs, to train where there are none."""

from kbqa.datasets.from_graph.making import Made, make_questions
from kbqa.datasets.from_graph.paraphrasing import Paraphraser
from kbqa.datasets.from_graph.splitting import FEWEST, split_made, write_splits

__all__ = ["FEWEST", "Made", "Paraphraser", "make_questions", "split_made", "write_splits"]
