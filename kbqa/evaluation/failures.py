"""Classifies episodes by the papers' outcomes and failures.

The papers name these classes, and assign some of them by hand. The rules here are ours, and are
documented at each class.
"""

from __future__ import annotations

from enum import StrEnum

from kbqa.answers import answer_set, normalise
from kbqa.curves.episodes import setbacks
from kbqa.evaluation.measures import was_executed
from kbqa.kg.actions import ErrorKind
from kbqa.rewards.kg_r1 import retrieval
from kbqa.trajectory import Question, Status, Trajectory

_BROKEN_OFF = frozenset({Status.UNPARSABLE, Status.OUT_OF_TOKENS, Status.TIMED_OUT})
_NOT_THERE = frozenset({ErrorKind.ENTITY_NOT_IN_KG, ErrorKind.INVALID_RELATION, ErrorKind.RELATION_REJECTED})


class AnswerOutcome(StrEnum):
    """Composition of rollouts (KnowCoder-A1, figure 4a)."""

    DIRECT_HIT = "direct_hit"
    """A gold answer was given, without an error or empty result before."""
    RECOVERED = "recovered"
    """A gold answer was given after an error or empty result."""
    INCORRECT = "incorrect"
    """No gold answer was given."""


class FailureClass(StrEnum):
    """Failure modes of incorrect episodes (Learning-to-Refine, section 5.4.1 and figure 4)."""

    EXECUTION_FAILURE = "execution_failure"
    """The last query was not executed, or the episode broke off: unreadable, or out of tokens or time."""
    REFUSED = "refused"
    """No query was sent."""
    INCORRECT_LOGIC = "incorrect_logic"
    """The last query was executed, but the answer is wrong or missing."""


class Error(StrEnum):
    """Types of error where F1 is below 1 (KnowCoder-A1, appendix D and figure 6)."""

    HALLUCINATION = "hallucination"
    """An answer occurs in no observation; or there is none, and an action named items not in the graph."""
    RELATION = "relation"
    """Relation recall or selection: no gold answer was retrieved."""
    CONSTRAINT = "constraint"
    """Constraint application: a gold answer was retrieved, but answers are surplus, missing or different."""


def outcome(trajectory: Trajectory, *, hit: bool) -> AnswerOutcome:
    """The outcome of an episode.

    Args:
        hit: whether an answer is gold.
    """
    if not hit:
        return AnswerOutcome.INCORRECT
    return AnswerOutcome.RECOVERED if setbacks(trajectory) else AnswerOutcome.DIRECT_HIT


def failure(trajectory: Trajectory, *, correct: bool) -> FailureClass | None:
    """The failure mode of an episode; None if it is correct.

    Args:
        correct: whether the answer is correct.
    """
    if correct:
        return None
    queries = list(trajectory.actions)
    if not queries:
        return FailureClass.REFUSED
    if trajectory.status in _BROKEN_OFF or not was_executed(queries[-1]):
        return FailureClass.EXECUTION_FAILURE
    return FailureClass.INCORRECT_LOGIC


def error(question: Question, trajectory: Trajectory, *, f1: float) -> Error | None:
    """The type of error in an episode; None if F1 is 1.

    Args:
        f1: of the answers.
    """
    if f1 == 1:
        return None
    if _is_hallucinated(question, trajectory):
        return Error.HALLUCINATION
    return Error.CONSTRAINT if retrieval(question, trajectory) else Error.RELATION


def _is_hallucinated(question: Question, trajectory: Trajectory) -> bool:
    """Whether an answer occurs in no observation (evidence grounding: KnowCoder-A1, section 3.2)."""
    actions = list(trajectory.actions)
    if not trajectory.answers:
        return any(action.kind in _NOT_THERE for action in actions)
    names = (name for action in actions for name in (*action.items, *action.labels))
    seen = answer_set(names) | answer_set(question.topic_entities)
    most = max((len(action.items) for action in actions), default=0)
    given = zip(trajectory.answers, trajectory.answer_ids, strict=True)
    return any(not answer_set([text, *ids]) & seen and not _is_derived(text, most) for text, ids in given)


def _is_derived(text: str, most: int) -> bool:
    """Whether an answer may be a truth value, or the number of some items in one observation."""
    text = normalise(text)
    return text in ("true", "false") or (text.isdecimal() and len(text) < 7 and int(text) <= most)
