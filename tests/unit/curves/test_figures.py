"""The figures of each paper name fields that its recipes' records have."""

from __future__ import annotations

import pytest

from kbqa.curves import FIGURES, PAPERS, curve_names, figures_of
from kbqa.rewards.base import REWARDS


def test_every_paper_has_its_figures():
    assert FIGURES.keys() == PAPERS.keys()
    for reward in FIGURES:
        REWARDS.resolve(reward, {})  # raises for one that is not there
    assert figures_of("somebody's own") == ()


@pytest.mark.parametrize("reward", FIGURES)
def test_figures_are_told_apart(reward):
    figures = figures_of(reward)
    assert figures
    assert len({figure.title for figure in figures}) == len(figures)
    assert all(figure.fields and figure.source for figure in figures)


def test_curves_are_the_numbers_of_the_figures():
    assert {"reward", "executability", "rrcg_top1", "relation_similarity", "pruned"} <= set(curve_names())
    assert not {"error_reward", "relation_similarity_bins", "validation.f1"} & set(curve_names())
