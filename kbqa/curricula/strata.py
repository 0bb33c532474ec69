"""Kinds of questions, between which samples are balanced, and the difficulty of questions.

Difficulty is the number of reasoning steps (ISP-KGR, E.1): a gold program is decomposed into steps
that an agent takes, which need not be single edges of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.actions import to_actions
from kbqa.logical_forms.decomposition import decompose
from kbqa.logical_forms.s_expression import parse_s_expression
from kbqa.trajectory import Question

Stratum = Literal["hops", "steps", "operation", "level", "topics"]
"""How questions are classified: by the length of the gold path, the number of reasoning steps, the operation
beside a path, the level of generalisation, or the number of topic entities (0 for some of GrailQA)."""

Tier = Literal["easy", "medium", "hard"]


@dataclass(frozen=True, slots=True)
class Tiers:
    """The bounds of the difficulties.

    Attributes:
        easy: maximum reasoning steps of an easy question.
        medium: maximum of a question of medium difficulty; questions with more steps are hard.
    """

    easy: int = 1
    medium: int = 2

    def of(self, question: Question) -> Tier | None:
        """The question's tier; None where its gold program is unknown."""
        steps = reasoning_steps(question)
        if steps == 0:
            return None
        return "easy" if steps <= self.easy else "medium" if steps <= self.medium else "hard"


def stratum(question: Question, by: Stratum) -> str:
    """The kind of a question, as a label."""
    match by:
        case "hops":
            return str(question.hops)
        case "steps":
            return str(reasoning_steps(question))
        case "operation":
            return question.operation or "path"
        case "level":
            return question.level or "unknown"
        case "topics":
            return str(len(question.topic_entities))


def reasoning_steps(question: Question) -> int:
    """The steps of the gold program: queries of its decomposition, else actions of its form, else hops.

    Returns:
        0 if no program is known. If it cannot be decomposed, the number of hops.
    """
    try:
        if question.sparql:
            return len(decompose(question.sparql))
        if question.form:
            return len(to_actions(parse_s_expression(question.form)))
    except LogicalFormError:
        return question.hops
    return question.hops
