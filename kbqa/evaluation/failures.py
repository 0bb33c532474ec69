"""What became of an episode: the papers' classes of outcomes and failures.

The papers name their classes and assign some by hand; the rules that assign them here are ours, and
stand at each class.
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
    """It hits a gold answer, without an error or empty result on the way."""
    RECOVERED = "recovered"
    """It hits a gold answer after one."""
    INCORRECT = "incorrect"
    """It hits none."""


class FailureClass(StrEnum):
    """Failure modes of what is not correct (Learning-to-Refine, section 5.4.1 and figure 4)."""

    EXECUTION_FAILURE = "execution_failure"
    """Its last query was not executed, or it broke off: unreadable, or over its budget of tokens or time."""
    REFUSED = "refused"
    """It sent no query at all."""
    INCORRECT_LOGIC = "incorrect_logic"
    """Its queries were executed, and the answer is wrong or missing."""


class Error(StrEnum):
    """Types of error where F1 is below 1 (KnowCoder-A1, appendix D and figure 6)."""

    HALLUCINATION = "hallucination"
    """It gave an answer that nothing it saw contains, or gave none after naming what the graph has not."""
    RELATION = "relation"
    """Relation recall or selection: a gold answer was never among what it retrieved."""
    CONSTRAINT = "constraint"
    """Constraint application: it saw a gold answer, and its answers are too many, too few or others."""


def outcome(trajectory: Trajectory, *, hit: bool) -> AnswerOutcome:
    """Args:
    hit: whether an answer is gold.
    """
    if not hit:
        return AnswerOutcome.INCORRECT
    return AnswerOutcome.RECOVERED if setbacks(trajectory) else AnswerOutcome.DIRECT_HIT


def failure(trajectory: Trajectory, *, correct: bool) -> FailureClass | None:
    """Args:
    correct: whether the answer is right, as a judge says.
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
    """Args:
    f1: of the answers.
    """
    if f1 == 1:
        return None
    if _is_hallucinated(question, trajectory):
        return Error.HALLUCINATION
    return Error.CONSTRAINT if retrieval(question, trajectory) else Error.RELATION


def _is_hallucinated(question: Question, trajectory: Trajectory) -> bool:
    """Evidence grounding (KnowCoder-A1, section 3.2): every answer has to appear in an observation."""
    actions = list(trajectory.actions)
    if not trajectory.answers:
        return any(action.kind in _NOT_THERE for action in actions)
    names = (name for action in actions for name in (*action.items, *action.labels))
    seen = answer_set(names) | answer_set(question.topic_entities)
    most = max((len(action.items) for action in actions), default=0)
    given = zip(trajectory.answers, trajectory.answer_ids, strict=True)
    return any(not answer_set([text, *ids]) & seen and not _is_derived(text, most) for text, ids in given)


def _is_derived(text: str, most: int) -> bool:
    """Whether it may be a truth value, or the number of some of the things that it saw at a time."""
    text = normalise(text)
    return text in ("true", "false") or (text.isdecimal() and len(text) < 7 and int(text) <= most)
