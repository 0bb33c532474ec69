"""How a graph writes the names of its classes and relations."""

from __future__ import annotations

from typing import Literal

Style = Literal["snake", "camel", "pascal", "dotted", "words", "opaque"]
STYLES: tuple[Style, ...] = ("snake", "camel", "pascal", "dotted", "words", "opaque")
"""In an opaque style, names are numbers, and only labels say what they mean."""


def relation_name(style: Style, words: str, head: str) -> str:
    """The name of a relation of a kind, from its words; an opaque style has none, and gets that of snake."""
    first, *rest = words.split()
    match style:
        case "camel":
            return first + "".join(map(str.capitalize, rest))
        case "pascal":
            return class_name(words)
        case "dotted":
            return f"{head.replace(' ', '_')}.{'_'.join(words.split())}"
        case "words":
            return "-".join(words.split())
        case _:
            return "_".join(words.split())


def class_name(words: str) -> str:
    """The name of a class, from its words."""
    return "".join(map(str.capitalize, words.split()))
