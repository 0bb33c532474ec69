"""Singulars and plurals."""

from __future__ import annotations

import pytest

from kbqa.kg.linking.inflection import inflections


@pytest.mark.parametrize(
    ("plural", "singular"),
    [
        ("transistors", "transistor"),
        ("switches", "switch"),
        ("boxes", "box"),
        ("buses", "bus"),
        ("sizes", "size"),
        ("shoes", "shoe"),
        ("heroes", "hero"),
        ("capacities", "capacity"),
        ("movies", "movie"),
        ("keys", "key"),
        ("shelves", "shelf"),
        ("knives", "knife"),
        ("valves", "valve"),
        ("services", "service"),
        ("indices", "index"),
        ("matrices", "matrix"),
        ("children", "child"),
    ],
)
def test_a_plural_finds_its_singular(plural, singular):
    assert singular in inflections(plural)


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("switch", "switches"),
        ("capacity", "capacities"),
        ("holiday", "holidays"),
        ("transistor", "transistors"),
        ("woman", "women"),
        ("class", "classes"),
    ],
)
def test_a_singular_finds_its_plural(singular, plural):
    assert plural in inflections(singular)


@pytest.mark.parametrize("word", ["bus", "k367", "is", "us", ""])
def test_short_words_and_codes_have_one_form(word):
    assert inflections(word) == ()


@pytest.mark.parametrize("word", ["glass", "virus", "analysis"])
def test_not_every_s_is_a_plural(word):
    assert word[:-1] not in inflections(word)
