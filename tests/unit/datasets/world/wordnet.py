"""WordNet's files, or the reason why the tests that need them are skipped."""

from __future__ import annotations

import pytest

from kbqa.datasets.world.lexicon import Lexicon
from kbqa.errors import DatasetError


def lexicon_or_skip() -> Lexicon:
    pytest.importorskip("lemminflect", reason="no lemminflect here: pip install 'kbqa[worlds]'")
    try:
        return Lexicon.load()
    except DatasetError:
        pytest.skip("no WordNet here: install Debian's package wordnet-base, or set KBQA_WORDNET")
