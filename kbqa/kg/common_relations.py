"""Relations that people often ask about: which of them a graph has, and which it lacks altogether.

If other films have a composer, the graph itself shows that one film lacks it. If no film has one, nothing in
the graph says that a film could have a composer, and a policy takes the director for the answer to "who
composed the music of Heat?". So common_relations.yaml lists common relations, in English, each with the words
that can express it. A graph has such a relation if the name of one of its own relations contains one of the
words. A question asks for it if it contains one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

import yaml

from kbqa.kg.actions import Item
from kbqa.kg.ranking.encoders import words

_OPAQUE = re.compile(r"(?!.*[^\W\d_]{3}).*\d")  # such as P57: a digit, and no word


class CommonRelation(NamedTuple):
    """Attributes:
    name: how it is called, in words.
    said: the words that say it, the name and its plural among them, in lower case, with a space around each.
    """

    name: str
    said: tuple[str, ...]

    def is_said_in(self, text: str) -> bool:
        """Whether a text says it; the text is written as by `spaced`."""
        return any(one in text for one in self.said)


def lacking(relations: Iterable[Sequence[str]]) -> Sequence[CommonRelation]:
    """The common relations that a graph lacks.

    Args:
        relations: the names of each relation of the graph, such as its id and its label.

    Returns:
        Empty if the names do not show what the graph has: if a relation has no name that is made of words,
        or if no name contains a word of any common relation, so that they may be in another language.
    """
    known = list(relations)
    text = "".join(spaced(name) for names in known for name in names)
    absent = [relation for relation in common_relations() if not relation.is_said_in(text)]
    says_nothing = any(all(map(_OPAQUE.fullmatch, names)) for names in known)
    return [] if says_nothing or len(absent) == len(common_relations()) else absent


def saying(relations: Mapping[Item, Sequence[str]]) -> dict[CommonRelation, Sequence[Item]]:
    """The relations of a graph that say a common one, for each common relation that the graph has.

    Args:
        relations: the names of each relation of the graph, such as its id and its label.
    """
    texts = {relation: "".join(map(spaced, names)) for relation, names in relations.items()}
    found = {
        common: [relation for relation, text in texts.items() if common.is_said_in(text)]
        for common in common_relations()
    }
    return {common: said_by for common, said_by in found.items() if said_by}


def asked_for(
    question: str, topics: Iterable[str], relations: Iterable[CommonRelation]
) -> list[CommonRelation]:
    """Those of some relations that a question asks for.

    Args:
        topics: the names of what it is about, in which words do not count.
    """
    text = spaced(question)
    for topic in topics:
        text = text.replace(spaced(topic), " | ")
    return [relation for relation in relations if relation.is_said_in(text)]


def spaced(text: str) -> str:
    """The words of a text or name, in lower case, with a space around each of them."""
    return f" {words(text)} "


@cache
def common_relations() -> Sequence[CommonRelation]:
    """All that are listed."""
    file = resources.files("kbqa.kg") / "common_relations.yaml"
    listed = yaml.safe_load(file.read_text(encoding="utf-8"))
    return [
        CommonRelation(name, tuple(map(spaced, (name, f"{name}s", *further))))
        for name, further in listed.items()
    ]
