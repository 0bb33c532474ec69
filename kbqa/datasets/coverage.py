"""Checks whether a graph knows the names in a data set: topics, answers and relations.

This reveals a wrong dump, or one with other ids, in seconds instead of after days of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kbqa.errors import AmbiguousNameError
from kbqa.kg.store import GraphStore
from kbqa.trajectory import Question

_EXAMPLES = 5


@dataclass(slots=True)
class Found:
    """Counts of the distinct names of one kind.

    Attributes:
        names: number of names.
        missing: number of names that the graph does not know.
        examples: some of the missing names.
    """

    names: int = 0
    missing: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a data set a graph knows.

    Attributes:
        questions: number of questions checked.
        resolved: number of questions whose names are all known.
        topics, answers, relations: names by their role in the questions.
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


def coverage(store: GraphStore, questions: Iterable[Question]) -> Coverage:
    """Resolve the topic entities, gold answers and relations of gold paths, as actions would."""
    topics = _Names(store.resolve_entity)
    answers = _Names(store.resolve_entity)
    relations = _Names(store.resolve_relation)
    total = resolved = 0
    for question in questions:
        total += 1
        known = (
            topics.know(question.topic_entities),
            answers.know(question.answers),
            relations.know([hop.relation for hop in question.path]),
        )
        resolved += all(known)
    return Coverage(total, resolved, topics.found, answers.found, relations.found)


class _Names:
    """Resolves names of one kind, each once."""

    def __init__(self, resolve: Callable[[str], Sequence[str]]) -> None:
        self.found = Found()
        self._resolve = resolve
        self._known: dict[str, bool] = {}

    def know(self, names: Iterable[str]) -> bool:
        """Whether the graph knows all of them."""
        known = [self._knows(name) for name in names]  # a list, so that every name is counted
        return all(known)

    def _knows(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            try:
                known = bool(self._resolve(name))
            except AmbiguousNameError:
                known = False
            self._known[name] = known
            self.found.names += 1
            if not known:
                self.found.missing += 1
                if len(self.found.examples) < _EXAMPLES:
                    self.found.examples.append(name)
        return known
