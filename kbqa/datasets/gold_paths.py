"""Follows the gold paths of questions in a graph, and compares what is at their ends with the gold answers.

The two differ where the answers are noisy, such as where several films share a name and the gold answers
are those of one. No policy that follows the paths can then be right more often than they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.answers import em_set, rhits1
from kbqa.errors import AmbiguousNameError
from kbqa.gold import compare
from kbqa.kg.store import GraphStore, PathStep
from kbqa.trajectory import Question

_ENDS = 100_000  # nodes at the end of a path that are compared with the gold answers


@dataclass(frozen=True, slots=True)
class GoldPaths:
    """How well gold paths lead to the gold answers.

    Attributes:
        questions: number of questions with a gold path.
        exact: number of those whose path leads to exactly the gold answers.
        hits: sum over them of the share of gold answers among the nodes at the end of the path.
    """

    questions: int = 0
    exact: int = 0
    hits: float = 0.0

    @property
    def rhits1(self) -> float:
        """RHits@1 of the paths: how often a node drawn at random from the end of each is right.

        0 without questions.
        """
        return self.hits / self.questions if self.questions else 0.0


class _Outcome(NamedTuple):
    """What a path leads to, beside the gold answers."""

    exact: bool
    hits: float


def gold_paths(store: GraphStore, questions: Iterable[Question]) -> GoldPaths:
    """Follow the path of each question that has one, from its topic entities.

    Some data sets leave the topic out of the answers of a path that returns to it, and others do not.
    Whichever agrees better with the gold answers counts.
    """
    outcomes = [
        max(_followed(store, question, returning=returning) for returning in (False, True))
        for question in questions
        if question.path
    ]
    return GoldPaths(len(outcomes), sum(one.exact for one in outcomes), sum(one.hits for one in outcomes))


def _followed(store: GraphStore, question: Question, *, returning: bool) -> _Outcome:
    topics = [id_ for topic in question.topic_entities for id_ in store.resolve_entity(topic)]
    try:
        steps = [PathStep(store.resolve_relation(hop.relation), hop.inverse) for hop in question.path]
    except AmbiguousNameError:
        return _Outcome(False, 0.0)
    if not topics or not all(step.relations for step in steps):
        return _Outcome(False, 0.0)
    ends = store.follow(topics, steps, limit=_ENDS, returning=returning).ends.items
    compared = compare(question, [end.label for end in ends], [(end.id,) for end in ends])
    return _Outcome(em_set(*compared), rhits1(*compared))
