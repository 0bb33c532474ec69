"""Encodes texts as vectors, to compare a relation that a policy writes with the existing ones.

    encoder = NgramEncoder()
    encoder.encode(["people person place of birth"]) @ encoder.encode_query("place of birth")   # [1]

Every encoder returns unit vectors, so their dot product is the cosine similarity. The
meaning of a similarity depends on the encoder, so each encoder has its own thresholds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbqa.errors import ConfigurationError

# [n, dimension]; rows have length 1, or 0 for a text without letters or digits.
Matrix = NDArray[np.float32]
# [dimension]
Vector = NDArray[np.float32]

NGRAM = "ngram"

_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """KBQA-R1's confidence tiers (section IV-A3): a score >= `high` is a match, a score < `low` is none."""

    high: float = 0.95
    low: float = 0.3

    def __post_init__(self) -> None:
        if not -1 <= self.low <= self.high <= 1:
            raise ConfigurationError(
                f"thresholds high={self.high} and low={self.low}: -1 <= low <= high <= 1 is required"
            )


def is_named(encoder: Encoder, wanted: str) -> bool:
    """Whether an encoder is the wanted one: whether its name contains the last part of the wanted name."""
    return wanted.rstrip("/").rpartition("/")[2].casefold() in encoder.name.casefold()


class Encoder(Protocol):
    """Turns texts into vectors. Safe for many threads."""

    @property
    def name(self) -> str:
        """Identifies the vectors: encoders with the same name return the same vectors."""
        ...

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds for its similarities, unless a request overrides them."""
        ...

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Encode the texts to search among: [len(texts), dimension].

        Raises:
            EncoderUnavailableError: the encoder is remote and does not answer.
        """
        ...

    def encode_query(self, text: str, instruction: str = "") -> Vector:
        """Encode the text to search for: [dimension].

        Args:
            instruction: the task as a sentence ("Given a question, select the relations …"),
                for encoders that were trained with instructions; others ignore it.

        Raises:
            EncoderUnavailableError: likewise.
        """
        ...


def words(text: str) -> str:
    """Split a text or name (`people.person.place_of_birth`, `placeOfBirth`) into lower-case words."""
    text = _CAMEL_CASE.sub(" ", unicodedata.normalize("NFKC", text))
    return " ".join(_WORD.findall(text.casefold()))


class NgramEncoder:
    """Character trigrams within words, hashed with signs (Weinberger et al., 2009); needs no model.

    `birth` counts as ` bi`, `bir`, `irt`, `rth` and `th `, so that word order matters little and a
    typing error costs three trigrams. Two texts without a common trigram have a similarity
    of 0 ± about 0.04, the noise of 512 hashed dimensions.
    """

    _DIMENSION, _N = 512, 3
    # Texts per chunk, so that counting needs only some megabytes.
    _CHUNK = 4096

    name = f"{NGRAM}-{_N}-{_DIMENSION}"

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()

    def encode(self, texts: Sequence[str]) -> Matrix:
        vectors = np.empty((len(texts), self._DIMENSION), np.float32)
        for start in range(0, len(texts), self._CHUNK):
            chunk = texts[start : start + self._CHUNK]
            vectors[start : start + len(chunk)] = self._counts([words(text) for text in chunk])
        return unit_rows(vectors)

    def encode_query(self, text: str, instruction: str = "") -> Vector:
        vector: Vector = self.encode([text])[0]
        return vector

    def _counts(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Signed counts of hashed trigrams: [len(texts), dimension]."""
        # One array of code points; each text begins and ends with a space, and 0 separates texts.
        joined = "".join(f" {text} \0" for text in texts)
        codes = np.frombuffer(joined.encode("utf-32-le", "replace"), np.uint32).astype(np.uint64)
        owner = np.cumsum(codes == 0)
        hashes = np.zeros(max(len(codes) - self._N + 1, 0), np.uint64)
        within = np.ones(len(hashes), bool)
        for position in range(self._N):
            character = codes[position : position + len(hashes)]
            within &= character != 0
            if position == 1:
                # A space in the middle joins two words.
                within &= character != ord(" ")
            hashes = (hashes ^ character) * np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(29)
        hashes = hashes[within]
        cells = owner[: len(within)][within] * self._DIMENSION + (hashes % np.uint64(self._DIMENSION)).astype(
            np.int64
        )
        signs = np.where(hashes >> np.uint64(63), 1.0, -1.0)
        shape = (len(texts), self._DIMENSION)
        counts = np.bincount(cells, signs, shape[0] * shape[1]).astype(np.float64).reshape(shape)
        cancelled = ~counts.any(axis=1)
        if cancelled.any():
            # The few trigrams of a short text may share a cell with opposite signs.
            counts[cancelled] = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)[cancelled]
        return counts


def unit_rows(vectors: NDArray[np.floating]) -> Matrix:
    """Normalise rows to length 1; rows of zeros stay zero. [n, dimension]"""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows: Matrix = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return rows
