"""Curves: the numbers of each step that the papers plot, as pure functions of scored rollouts."""

from kbqa.curves.episodes import episode_means, f1_by
from kbqa.curves.figures import FIGURES, PAPERS, Figure, PaperFigures, curve_names, figures_of, paper_of
from kbqa.curves.questions import error_reward_points, question_means, tree_means
from kbqa.curves.relations import gate_means, histogram, relation_similarities

__all__ = [
    "FIGURES",
    "PAPERS",
    "Figure",
    "PaperFigures",
    "curve_names",
    "episode_means",
    "error_reward_points",
    "f1_by",
    "figures_of",
    "gate_means",
    "histogram",
    "paper_of",
    "question_means",
    "relation_similarities",
    "tree_means",
]
