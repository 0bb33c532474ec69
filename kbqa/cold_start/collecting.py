"""Collects demonstrations: a teacher's attempts at many questions, filtered, counted and selected.

    question ──▶ teacher: candidates, as turns ──▶ played again ──▶ filter ──▶ leaks ──▶ kept
                                                                     └────────┴──▶ counted by reason

A candidate's turns are played again in an episode without hints, so that a demonstration contains only
what a policy could have written, and the observations that it would have read.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Protocol

from kbqa.cold_start.demonstrations import Demonstration, Played, play, play_program, recite
from kbqa.cold_start.filters import Filter, Rejection, exact, outcome, referenced, score
from kbqa.cold_start.leaks import find_leaks
from kbqa.cold_start.narration import narrate
from kbqa.cold_start.references import (
    ReferencedAgent,
    ReferencedChatAgent,
    commands,
    reference_actions,
)
from kbqa.curricula import Stratum, balanced, stratum
from kbqa.kg.actions import GraphTools
from kbqa.policies.base import ChatPolicy
from kbqa.protocols import AgentProtocol, KbqaR1
from kbqa.rollouts import Agent, ChatAgent, linear_rollout
from kbqa.trajectory import Question

PER_QUESTION = 3
"""Maximum demonstrations of a question (KnowCoder-A1, 4.2.1)."""


class Teacher(Protocol):
    """What writes the turns of candidates."""

    @property
    def accepts(self) -> Filter:
        """The filter that its candidates have to pass."""
        ...

    @property
    def plans(self) -> bool:
        """Whether its thoughts state the steps to come, by design."""
        ...

    def candidates(self, question: Question) -> list[list[str]] | None:
        """Candidates, each as the texts of its turns; None if the question cannot be taught.

        Raises:
            PolicyUnavailableError, PolicyRefusedError: its model does not answer.
            GraphNotFoundError, GraphUnavailableError: the graph does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """The dialect, graph and turn limit with which lessons are played."""

    protocol: AgentProtocol
    tools: GraphTools
    max_turns: int

    def gold(self, question: Question) -> Played | None:
        """The gold program of a question, if it can be played here."""
        return play_program(question, self.protocol, self.tools, self.max_turns)


@dataclass(frozen=True, slots=True)
class GoldTeacher:
    """The gold program itself, whose thoughts are plans; see `kbqa.cold_start.teachers`."""

    setting: Setting
    accepts: Filter = exact
    plans: bool = True

    def candidates(self, question: Question) -> list[list[str]] | None:
        played = self.setting.gold(question)
        return None if played is None else [[turn.text for turn in played.turns]]


@dataclass(frozen=True, slots=True)
class SamplingTeacher:
    """A model that plays by itself (outcome rejection sampling; KnowCoder-A1, 4.2.1).

    Attributes:
        n: number of candidates of a question.
        accepts: the filter; with KBQA-R1's `referenced` this is its ablation "w/o RRS" (V-C).
    """

    agent: Agent | ChatAgent
    n: int
    temperature: float = 1.0
    seed: int = 0
    accepts: Filter = outcome
    plans: bool = False

    def candidates(self, question: Question) -> list[list[str]] | None:
        seed = random.Random(f"{self.seed}/{question.id}").getrandbits(31)
        # Two branches for the type checker: a rollout's episodes are all of one kind.
        if isinstance(self.agent, Agent):
            trajectories = linear_rollout(self.agent, question, self.n, self.temperature, seed=seed)
        else:
            trajectories = linear_rollout(self.agent, question, self.n, self.temperature, seed=seed)
        return [[turn.text for turn in trajectory.turns] for trajectory in trajectories]


@dataclass(frozen=True, slots=True)
class ReferencedTeacher:
    """A model that is shown its next gold step (referenced rejection sampling; KBQA-R1, IV-B1).

    In KBQA-R1's dialect the steps are read off the logical form, whatever it finds; in others, the gold
    program has to lead to the answers.
    """

    setting: Setting
    sampling: SamplingTeacher
    accepts: Filter = referenced
    plans: bool = False

    def candidates(self, question: Question) -> list[list[str]] | None:
        steps = self._steps(question)
        if not steps:
            return None
        return replace(self.sampling, agent=_referenced(self.sampling.agent, steps)).candidates(question)

    def _steps(self, question: Question) -> tuple[str, ...]:
        if isinstance(self.setting.protocol, KbqaR1):
            return reference_actions(question, self.setting.max_turns - 1)
        played = self.setting.gold(question)
        return () if played is None else commands(played)


@dataclass(frozen=True, slots=True)
class NarratedTeacher:
    """The gold program's commands with a model's thoughts (ISP-KGR, E.2)."""

    setting: Setting
    narrator: ChatPolicy
    n: int = 1
    temperature: float = 0.0
    seed: int = 0
    accepts: Filter = exact
    plans: bool = False

    def candidates(self, question: Question) -> list[list[str]] | None:
        played = self.setting.gold(question)
        if played is None:
            return None
        return [
            narrate(played, self.narrator, temperature=self.temperature, seed=self.seed + number)
            for number in range(self.n)
        ]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of a teacher's attempt at a question.

    Attributes:
        kind: kind of the question, for statistics.
        kept: demonstrations, in the order of the candidates.
        rejected: why each of the other candidates was rejected.
        f1: of every candidate.
    """

    question: str
    kind: str
    kept: tuple[Demonstration, ...] = ()
    rejected: tuple[str, ...] = ()
    f1: tuple[float, ...] = ()


def attempt(question: Question, teacher: Teacher, setting: Setting, by: Stratum = "operation") -> Attempt:
    """Let a teacher try a question; raises as `Teacher.candidates`."""
    kind = stratum(question, by)
    candidates = teacher.candidates(question)
    if candidates is None:
        return Attempt(question.id, kind, rejected=(Rejection.UNPLAYABLE,))
    kept: dict[tuple[str, ...], Demonstration] = {}
    rejected: list[str] = []
    scores: list[float] = []
    for texts in candidates:
        played = play(question, setting.protocol, setting.tools, recite(texts), setting.max_turns)
        scores.append(score(played))
        leak = next(find_leaks(played, plans=teacher.plans), None)
        said = tuple(texts)
        reason = teacher.accepts(played) or (leak and leak.leak)
        if reason is None and said in kept:
            reason = Rejection.DUPLICATE
        if reason is None:
            kept[said] = played.demonstration
        else:
            rejected.append(str(reason))
    return Attempt(question.id, kind, tuple(kept.values()), tuple(rejected), tuple(scores))


def attempts(
    questions: Iterable[Question], work: Callable[[Question], Attempt], parallel: int = 1
) -> Iterator[Attempt]:
    """Attempts at many questions, several at a time, in the order of the questions."""
    with ThreadPoolExecutor(parallel, thread_name_prefix="teacher") as pool:
        yield from pool.map(work, questions)


def choose(
    tried: Sequence[Attempt],
    rng: random.Random,
    *,
    per_question: int = PER_QUESTION,
    balance: bool = False,
    count: int | None = None,
) -> list[Demonstration]:
    """Select the demonstrations to use.

    Args:
        per_question: maximum for a question.
        balance: whether to take equal numbers of each kind of question, as far as available.
        count: maximum in total; None takes all or, with `balance`, as many of each kind as the rarest has.
    """
    found = [(one.kind, demonstration) for one in tried for demonstration in one.kept[:per_question]]
    if balance:
        found = balanced(found, lambda pair: pair[0], count, rng)
    elif count is not None:
        found = found[:count]
    return [demonstration for _, demonstration in found]


def acceptance(tried: Sequence[Attempt]) -> dict[str, Any]:
    """Acceptance statistics, as KBQA-R1's table VII has them.

    Returns:
        `questions`; `taught`, the questions with at least one demonstration; `accepted` and `total`
        candidates and the accepted `share`; the mean `f1` of all candidates; the same `by_kind` of
        question; `rejected`, numbers by reason. A question that cannot be taught counts as a candidate.
    """
    kinds: defaultdict[str, list[Attempt]] = defaultdict(list)
    for one in tried:
        kinds[one.kind].append(one)
    return {
        **_figures(tried),
        "by_kind": {kind: _figures(members) for kind, members in sorted(kinds.items())},
        "rejected": dict(Counter(reason for one in tried for reason in one.rejected).most_common()),
    }


def _figures(tried: Sequence[Attempt]) -> dict[str, Any]:
    accepted = sum(len(one.kept) for one in tried)
    total = accepted + sum(len(one.rejected) for one in tried)
    scores = [value for one in tried for value in one.f1]
    return {
        "questions": len(tried),
        "taught": sum(bool(one.kept) for one in tried),
        "accepted": accepted,
        "total": total,
        "share": accepted / total if total else 0.0,
        "f1": fmean(scores) if scores else 0.0,
    }


def _referenced(agent: Agent | ChatAgent, steps: tuple[str, ...]) -> Agent | ChatAgent:
    """The same agent, which is shown the gold steps."""
    if isinstance(agent, ChatAgent):
        return ReferencedChatAgent(
            agent.policy, agent.protocol, agent.tools, agent.budget, agent.native_tools, steps
        )
    return ReferencedAgent(
        agent.policy,
        agent.codec,
        agent.protocol,
        agent.tools,
        agent.budget,
        agent.truncation,
        steps=steps,
    )
