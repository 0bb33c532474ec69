"""Parts of a question that may be names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_MAX_NAMES, _MAX_NAME_WORDS = 200, 6
_WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*\.?|[^\w\s]")


def possible_names(question: str) -> list[str]:
    """Runs of up to 6 words, longer ones first, each in several capitalisations; at most 200."""
    return list(islice(dict.fromkeys(_names(question)), _MAX_NAMES))


def _names(question: str) -> Iterator[str]:
    words = list(_WORD.finditer(question))
    for length in range(min(_MAX_NAME_WORDS, len(words)), 0, -1):
        for first in range(len(words) - length + 1):
            text = question[words[first].start() : words[first + length - 1].end()]
            if any(character.isalnum() for character in text):
                yield from (text, text.title(), text.lower(), text[:1].upper() + text[1:])
