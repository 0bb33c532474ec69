"""Kinds of rollouts from other distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kbqa.parts import Parts
from kbqa.rollouts.agent import Agent
from kbqa.trajectory import Question, Trajectory
from kbqa.tree import Tree


class Rollout(ABC):
    """A kind of rollout: how the episodes of a question are played in training.

    A kind is a dataclass with `play`. It is an entry point of the group `kbqa.rollouts`, and a recipe's
    `rollout.kind` names it. Its fields are options besides those that every kind has.
    """

    __slots__ = ()

    @abstractmethod
    def play(
        self,
        agent: Agent,
        question: Question,
        n: int,
        temperature: float,
        *,
        seed: int | None = None,
        deadline: float | None = None,
    ) -> list[Trajectory] | Tree:
        """Play a question.

        Args:
            n: `rollout.n` of the recipe.
            seed: makes the samples repeatable.
            deadline: `time.monotonic()` after which episodes that still run time out.

        Raises:
            PolicyUnavailableError, GraphNotFoundError, GraphUnavailableError: all episodes are lost.
        """


KINDS: Parts[Rollout] = Parts("rollouts")
