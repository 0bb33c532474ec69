"""Questions from a loaded graph alone: verified, with answers and programs, to train where there are none."""

from kbqa.datasets.from_graph.making import Made, make_questions

__all__ = ["Made", "make_questions"]
