"""Checks how many of the names in a data set a graph knows: topics, answers and relations.

This reveals a wrong dump, or one with other ids, in seconds instead of after days of training.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kbqa.answers import normalise
from kbqa.datasets.gold import is_computed, is_id
from kbqa.errors import AmbiguousNameError
from kbqa.kg.store import GraphStore
from kbqa.trajectory import Question

_EXAMPLES = 5
_AT_ONCE = 1000  # names that are looked up together
_FREEBASE_KEY = re.compile(r"en\.\w+")


class Missing(NamedTuple):
    """A name that the graph does not know, and why it may not."""

    name: str
    why: str


@dataclass(slots=True)
class Found:
    """Counts of the distinct names of one kind.

    Attributes:
        names: number of names.
        missing: number of names that the graph does not know.
        computed: number of numbers, dates and truth values that it does not contain, which a query may
            compute; they are not missing.
        examples: some of the missing names.
    """

    names: int = 0
    missing: int = 0
    computed: int = 0
    examples: list[Missing] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a data set a graph knows.

    Attributes:
        questions: number of questions checked.
        resolved: number of questions whose names are all known.
        topics, answers, relations: names by their role in the questions. An answer is known if the graph
            knows any of its names, such as its id or its label.
    """

    questions: int
    resolved: int
    topics: Found
    answers: Found
    relations: Found

    @property
    def share(self) -> float:
        """Share of questions whose names are all known; 0 without questions."""
        return self.resolved / self.questions if self.questions else 0.0


def coverage(store: GraphStore, questions: Sequence[Question]) -> Coverage:
    """Look up the topic entities, gold answers and relations of gold paths, as actions would."""
    names = {name for asked in questions for group in (*asked.golds, *asked.names) for name in group}
    entities = _known(store, names.union(*(asked.topic_entities for asked in questions)))
    others = {answer: rest for asked in questions for answer, *rest in asked.names}
    topics = _Names(entities.__contains__, lambda name: _why_no_entity(store, name))
    answers = _Names(
        lambda name: not entities.isdisjoint((name, *others.get(name, ()))),
        lambda name: _why_no_entity(store, name),
        is_computed,
    )
    relations = _Names(lambda name: _is_relation(store, name), lambda name: _why_no_relation(store, name))
    resolved = 0
    for question in questions:
        known = (
            topics.know(question.topic_entities),
            answers.know(dict.fromkeys(answer for gold in question.golds for answer in gold)),
            relations.know([hop.relation for hop in question.path]),
        )
        resolved += all(known)
    return Coverage(len(questions), resolved, topics.found, answers.found, relations.found)


def _known(store: GraphStore, names: set[str]) -> frozenset[str]:
    """The names that stand for an entity or value."""
    asked = sorted(filter(None, names))
    batches = (asked[start : start + _AT_ONCE] for start in range(0, len(asked), _AT_ONCE))
    return frozenset(name for some in batches for name in store.named(some, limit=1))


def _is_relation(store: GraphStore, name: str) -> bool:
    try:
        return bool(store.resolve_relation(name))
    except AmbiguousNameError:
        return False


def _why_no_entity(store: GraphStore, name: str) -> str:
    if is_id(name):
        return "no id of the graph"
    if _FREEBASE_KEY.fullmatch(name):
        return "a key by which Freebase's dumps before 2014 name an entity; later ones have m.… instead"
    if _is_relation(store, name):
        return "a relation of the graph, not an entity"
    for mention in store.link(name):
        if normalise(mention.label) == normalise(name):
            return f"the graph writes it {mention.label}"
        if mention.end - mention.start == len(name):
            return f"no label of the graph; the nearest is {mention.label}"
    return "no label of the graph"


def _why_no_relation(store: GraphStore, name: str) -> str:
    if store.resolve_entity(name):
        return "an entity of the graph, not a relation"
    return "no relation of the graph"


class _Names:
    """The names of one kind, each counted once.

    Args:
        knows: whether the graph knows a name.
        why: why it does not know it; asked for a few names only.
        needless: whether a name need not be in the graph.
    """

    def __init__(
        self,
        knows: Callable[[str], bool],
        why: Callable[[str], str],
        needless: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.found = Found()
        self._knows, self._why, self._needless = knows, why, needless
        self._seen: dict[str, bool] = {}

    def know(self, names: Iterable[str]) -> bool:
        """Whether the graph knows all of them."""
        known = [self._know(name) for name in names]  # a list, so that every name is counted
        return all(known)

    def _know(self, name: str) -> bool:
        if name in self._seen:
            return self._seen[name]
        known, found = self._knows(name), self.found
        found.names += 1
        if not known and self._needless(name):
            found.computed += 1
            known = True
        elif not known:
            found.missing += 1
            if len(found.examples) < _EXAMPLES:
                found.examples.append(Missing(name, self._why(name)))
        self._seen[name] = known
        return known
