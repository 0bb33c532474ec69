"""Kinds of rollouts that other distributions add."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kbqa.parts import Parts
from kbqa.rollouts.agent import Agent
from kbqa.trajectory import Question, Trajectory, Tree


class Rollout(ABC):
    """How the episodes of a question come about in training.

    A kind is a dataclass with `play`, an entry point of the group `kbqa.rollouts`, and named by a recipe's
    `rollout.kind`; its fields are options beside those that every kind has.
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
            PolicyUnavailableError, GraphNotFoundError, GraphUnavailableError: nothing is salvaged.
        """


KINDS: Parts[Rollout] = Parts("rollouts")
