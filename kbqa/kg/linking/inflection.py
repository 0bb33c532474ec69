"""Singulars and plurals of English nouns, so that "Switches" finds "Switch", and "Switch" "Switches"."""

from __future__ import annotations

_MIN_CHARS = 4  # shorter words that end in s are seldom plurals
_IRREGULAR = {
    "children": "child",
    "feet": "foot",
    "men": "man",
    "mice": "mouse",
    "people": "person",
    "teeth": "tooth",
    "women": "woman",
}
_KNOWN = {plural: (singular,) for plural, singular in _IRREGULAR.items()}
_KNOWN |= {singular: (plural,) for plural, singular in _IRREGULAR.items()}
# Endings of plurals with those of the singulars, and the other way round; the first that fits is used.
_SINGULARS = (
    ("ices", ("ice", "ix", "ex")),
    ("ies", ("y", "ie")),
    ("ves", ("f", "fe", "ve")),
    *((f"{end}es", (end, f"{end}e")) for end in ("s", "x", "z", "ch", "sh", "o")),
    *((end, ()) for end in ("ss", "us", "is")),
    ("s", ("",)),
)
_PLURALS = (
    *((f"{vowel}y", (f"{vowel}ys",)) for vowel in "aeiou"),
    ("y", ("ies",)),
    ("fe", ("ves", "fes")),
    ("f", ("ves", "fs")),
    ("ix", ("ices", "ixes")),
    ("ex", ("ices", "exes")),
    *((end, (f"{end}es",)) for end in ("s", "x", "z", "ch", "sh")),
    ("o", ("os", "oes")),
    ("", ("s",)),
)


def inflections(word: str) -> tuple[str, ...]:
    """What may be the singular or the plural of a word; by its ending, so not all of them are words.

    Args:
        word: in lower case.
    """
    if word in _KNOWN:
        return _KNOWN[word]
    if len(word) < _MIN_CHARS or not word.isalpha():
        return ()
    return _with_ending(word, _SINGULARS) or _with_ending(word, _PLURALS)


def _with_ending(word: str, endings: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[str, ...]:
    """The word with its ending replaced by each of the others for the first ending that it has."""
    for ending, others in endings:
        if word.endswith(ending):
            stem = word[: len(word) - len(ending)]
            return tuple(stem + other for other in others)
    return ()
