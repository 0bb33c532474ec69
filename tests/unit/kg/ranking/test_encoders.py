"""Texts as vectors: worked similarities, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbqa.errors import ConfigurationError
from kbqa.kg.ranking.encoders import NgramEncoder, Thresholds, words
from kbqa.kg.ranking.opening import open_encoder


@pytest.fixture(scope="module")
def encoder():
    return NgramEncoder()


def trigrams(text: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words(text).split():
        for start in range(len(word)):
            trigram = f" {word} "[start : start + 3]
            counts[trigram] = counts.get(trigram, 0) + 1
    return counts


def cosine(one: dict[str, int], other: dict[str, int]) -> float:
    dot = sum(count * other.get(trigram, 0) for trigram, count in one.items())
    return dot / math.sqrt(sum(c * c for c in one.values()) * sum(c * c for c in other.values()))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("birth", "birth", 1.0),
        ("Place_of_Birth", "place of birth", 1.0),
        ("birth place", "placeOfBirth", 10 / math.sqrt(10 * 12)),  # `of` is " of" and "of "
        # " bi bir irt rth th_" against " bi bir ths irt rts" …: "birht" keeps " bi" and "bir".
        ("birth", "birht", 2 / 5),
        ("birth", "xyzzy", 0.0),
    ],
)
def test_similarities_are_those_of_trigrams(encoder, one, other, expected):
    assert encoder.encode([one])[0] @ encoder.encode_query(other) == pytest.approx(expected, abs=0.05)


def is_varied(text):
    """Whether no trigram is most of a text, so that two of different texts in one dimension change little."""
    counts = trigrams(text)
    return len(counts) >= 8 and max(counts.values()) <= 2


LONG = st.lists(st.text(min_size=3, max_size=12), min_size=3, max_size=8).map(" ".join).filter(is_varied)


@given(LONG, LONG)
def test_hashing_changes_a_similarity_by_its_noise_alone(one, other):
    encoder = NgramEncoder()
    exact = cosine(trigrams(one), trigrams(other))
    assert float(encoder.encode([one])[0] @ encoder.encode_query(other)) == pytest.approx(exact, abs=0.5)


def test_the_noise_of_hashing_is_small(encoder):
    names = [f"{a}{b}{c}" for a in ("kra", "mup", "wos") for b in ("lin", "det", "fog") for c in ("az", "ox")]
    vectors = encoder.encode(names)
    exact = np.array([[cosine(trigrams(a), trigrams(b)) for a in names] for b in names])
    assert np.sqrt(np.mean((vectors @ vectors.T - exact) ** 2)) < 0.05


@given(st.lists(st.text(max_size=30), max_size=8))
@example(["Pÿ"])  # its two trigrams cancel each other out, unless signs are left out
def test_rows_are_of_length_one_and_the_same_alone_and_together(texts):
    encoder = NgramEncoder()
    together = encoder.encode(texts)
    assert together.shape == (len(texts), 512)
    assert together.dtype == np.float32
    for text, row in zip(texts, together, strict=True):
        assert np.linalg.norm(row) == pytest.approx(1.0 if words(text) else 0.0, abs=1e-5)
        assert np.array_equal(row, encoder.encode_query(text))


def test_a_text_of_marks_alone_resembles_nothing(encoder):
    assert not encoder.encode(["", "…?!", "_"]).any()


def test_half_of_a_surrogate_pair_is_a_text_too(encoder):
    assert encoder.encode(["\ud83d birth"]).shape == (1, 512)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("people.person.place_of_birth", "people person place of birth"),
        ("placeOfBirth", "place of birth"),
        ("P19", "p19"),
        ("Köln–Süd", "köln süd"),
        ("出生地", "出生地"),
    ],
)
def test_words(written, spoken):
    assert words(written) == spoken


@pytest.mark.parametrize(("high", "low"), [(0.3, 0.95), (1.5, 0.3), (0.9, -2.0)])
def test_thresholds_in_the_wrong_order_are_refused(high, low):
    with pytest.raises(ConfigurationError, match="low <= high"):
        Thresholds(high, low)


def test_the_papers_thresholds_are_the_default(encoder):
    assert encoder.thresholds == Thresholds(high=0.95, low=0.3)
    assert open_encoder("ngram", thresholds=Thresholds(0.8, 0.2)).thresholds == Thresholds(0.8, 0.2)


def test_an_encoder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="nowhere"):
        open_encoder(str(tmp_path / "nowhere"))
