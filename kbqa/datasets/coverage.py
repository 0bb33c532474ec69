"""Whether a graph holds what a data set asks about: names of topics, answers and relations.

A wrong dump, or one with other ids, shows here in seconds, not after days of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kbqa.kg.store import GraphStore
from kbqa.trajectory import Question

_EXAMPLES = 5


@dataclass(slots=True)
class Found:
    """How many different names of one kind the graph resolves.

    Attributes:
        names: how many there are.
        missing: how many of them it does not know.
        examples: some of those.
    """

    names: int = 0
    missing: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of a data set a graph resolves.

    Attributes:
        questions: how many were looked at.
        resolved: those of which it knows every name.
        topics, answers, relations: names by their part in the questions.
    """

    questions: int
    resolved: int
    topics: Found
    answers: Found
    relations: Found

    @property
    def share(self) -> float:
        """Share of questions of which every name is known; 0 without questions."""
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
    """Names of one kind; each is resolved once."""

    def __init__(self, resolve: Callable[[str], Sequence[str]]) -> None:
        self.found = Found()
        self._resolve = resolve
        self._known: dict[str, bool] = {}

    def know(self, names: Iterable[str]) -> bool:
        """Whether the graph knows all of them."""
        known = [self._knows(name) for name in names]  # each of them is to be counted
        return all(known)

    def _knows(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = bool(self._resolve(name))
            self.found.names += 1
            if not known:
                self.found.missing += 1
                if len(self.found.examples) < _EXAMPLES:
                    self.found.examples.append(name)
        return known
