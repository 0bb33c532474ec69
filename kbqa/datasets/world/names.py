"""Names for the entities of a generated world, which show their kind."""

from __future__ import annotations

import random

_ONSETS = [
    "b",
    "br",
    "c",
    "ch",
    "d",
    "dr",
    "f",
    "g",
    "gr",
    "h",
    "j",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "st",
    "t",
    "tr",
    "v",
    "w",
    "z",
]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ea"]
_CODAS = ["", "", "l", "n", "r", "s", "th", "m"]
_TITLES = [
    "Silent",
    "Golden",
    "Broken",
    "Hidden",
    "Last",
    "First",
    "Winter",
    "Summer",
    "Crimson",
    "Distant",
    "Burning",
    "Empty",
]
_THINGS = [
    "River",
    "Mountain",
    "Garden",
    "Mirror",
    "Door",
    "Harbour",
    "Bridge",
    "Forest",
    "Letter",
    "Voyage",
    "Crown",
    "Storm",
]


def _word(rng: random.Random, syllables: int) -> str:
    parts = [rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)]
    return "".join(parts).capitalize()


def draw_names(kind: str, count: int, rng: random.Random) -> list[str]:
    """Draw distinct names that show their kind."""
    given = [_word(rng, 2) for _ in range(60)]
    family = [_word(rng, 2) for _ in range(90)]
    forms = {
        "person": lambda: f"{rng.choice(given)} {rng.choice(family)}",
        "film": lambda: f"The {rng.choice(_TITLES)} {_word(rng, 2)}",
        "book": lambda: f"{_word(rng, 2)} and the {rng.choice(_THINGS)}",
        "event": lambda: f"{_word(rng, 2)} {rng.choice(['Cup', 'Open', 'Festival', 'Games'])}",
        "company": lambda: f"{_word(rng, 2)} {rng.choice(['Works', 'Group', 'Press', 'Labs'])}",
        "university": lambda: f"University of {_word(rng, 2)}",
        "country": lambda: _word(rng, 2) + "ia",
        "language": lambda: _word(rng, 2) + "ish",
        "profession": lambda: _word(rng, 1).lower() + rng.choice(["smith", "wright", "ist", "er"]),
        "award": lambda: f"the {_word(rng, 2)} {rng.choice(['Prize', 'Medal', 'Award'])}",
        "role": lambda: f"{rng.choice(['head', 'chief', 'deputy', 'junior'])} of {_word(rng, 1).lower()}",
        "religion": lambda: _word(rng, 2) + "ism",
        "genre": lambda: _word(rng, 1).lower() + "punk",
        "thing": lambda: _word(rng, 2) + rng.choice(["", "", f" {rng.randint(2, 99)}"]),
        "year": lambda: str(rng.randint(1900, 2020)),
        "city": lambda: _word(rng, 2) + rng.choice(["ville", "burg", "ton", "port"]),
    }
    names: dict[str, None] = {}
    while len(names) < count:
        names[forms[kind]()] = None
    return list(names)
