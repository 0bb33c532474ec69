"""Beam search: of a few episodes of a question that are played side by side, the one to answer with.

At each turn, every running episode is continued by its likeliest turns, and of all episodes, running and
ended, the likeliest `beam` remain. An episode is as likely as all its choices together. When all have ended,
they are compared as wholes: if the policy has a re-ranker, its ratings are added to the log-probabilities.

A policy that declines all options is made to choose one of them afterwards, which is as likely as if it had
not declined (`kbqa.confidence`); so where its likeliest turn declines, the episode is continued by this one
alone, and otherwise by none that declines.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Generic, NamedTuple

from kbqa.answers import answer_set
from kbqa.confidence import log_likelihoods
from kbqa.policies.base import is_unwanted
from kbqa.rollouts.agent import Branches, EpisodeT, Player, Sampling, Searcher, consult
from kbqa.rollouts.linear import Listener, linear_rollout
from kbqa.rollouts.query_cache import QueryCache
from kbqa.trajectory import Question, Search, Status, Trajectory, declines

UNLIKELY = 14.0
"""An episode that is so many nats less likely than another one is not rated: no rating makes up for that."""


def answering_rollout(
    player: Player[EpisodeT],
    question: Question,
    temperature: float,
    *,
    seed: int | None = None,
    deadline: float | None = None,
    cancelled: threading.Event | None = None,
    listener: Listener | None = None,
) -> Trajectory:
    """The episode by which a question is answered: of a beam search, if the player makes one.

    Args:
        temperature, seed: of an episode that is sampled; not of a beam search.
        deadline, cancelled, listener: as for `linear_rollout`; so are the errors.
    """
    if isinstance(player, Searcher) and player.beam > 1:
        return beam_rollout(player, question, deadline=deadline, cancelled=cancelled, listener=listener)
    [trajectory] = linear_rollout(
        player,
        question,
        1,
        temperature,
        seed=seed,
        deadline=deadline,
        cancelled=cancelled,
        listener=listener,
    )
    return trajectory


def beam_rollout(
    player: Searcher[EpisodeT],
    question: Question,
    *,
    deadline: float | None = None,
    cancelled: threading.Event | None = None,
    listener: Listener | None = None,
) -> Trajectory:
    """Search `player.beam` episodes of a question side by side.

    Args:
        deadline, cancelled: as for `linear_rollout`.
        listener: is told about the turns of the episode that is taken, once that is known.

    Returns:
        The episode that weighs most of those that answer; if none does, of all.

    Raises:
        PolicyUnavailableError, GraphNotFoundError, GraphUnavailableError: the question cannot be played.
    """
    beam = beam_search(player, question, deadline=deadline, cancelled=cancelled)
    members = beam.members
    best = next((member for member in members if member.episode.status is Status.ANSWERED), members[0])
    found = best.episode.trajectory()
    if listener is not None:
        _tell(listener, found)
    return replace(found, search=_search(best, beam, found))


@dataclass(frozen=True, slots=True)
class Member(Generic[EpisodeT]):
    """An episode of the beam.

    Attributes:
        presence: as that of a `Search`.
        rating: as of `Searcher.rate`.
    """

    episode: EpisodeT
    presence: float = 1.0
    rating: float = 0.0

    @property
    def log_likelihood(self) -> float:
        return sum(log_likelihoods(self.episode.turns))

    @property
    def weight(self) -> float:
        """Log-probability of the whole, up to a constant that is the same for all of the beam."""
        return self.log_likelihood + self.rating

    @property
    def declines(self) -> bool:
        return declines(self.episode.turns[-1].thought)

    @property
    def answers(self) -> frozenset[str]:
        return answer_set(answer.text for answer in self.episode.answers)


class Beam(NamedTuple, Generic[EpisodeT]):
    """What a search found.

    Attributes:
        members: ended episodes, those that weigh most first.
        read: tokens before each turn that the policy wrote.
        executed: actions of all turns; equal ones are executed once.
    """

    members: list[Member[EpisodeT]]
    read: list[int]
    executed: int


def beam_search(
    player: Searcher[EpisodeT],
    question: Question,
    *,
    deadline: float | None = None,
    cancelled: threading.Event | None = None,
) -> Beam[EpisodeT]:
    """All episodes that a search ends with; arguments and errors as for `beam_rollout`."""
    tools = QueryCache(player.tools)
    beam = [Member(player.begin(question))]
    consult(tools, question, [beam[0].episode])
    looked, read, turn = tools.executed, list[int](), 0
    while running := [member for member in beam if not member.episode.done]:
        if is_unwanted(deadline, cancelled):
            _expire(running)
            break
        branches = player.branch(
            [member.episode for member in running], Sampling(turn, 0.0, None, deadline, cancelled)
        )
        grown = [list(_continued(*each, player.beam)) for each in zip(running, branches, strict=True)]
        if not any(grown):  # no turn came in time
            _expire(running)
            break
        read += (likeliest.episode.turns[-1].start for likeliest, *_ in filter(None, grown))
        ended = [member for member in beam if member.episode.done]
        ranked = sorted([*ended, *chain(*grown)], key=lambda member: member.log_likelihood, reverse=True)
        beam = ranked[: player.beam]
        consult(tools, question, [member.episode for member in beam])
        turn += 1
    return Beam(_reranked(player, beam), read, tools.executed - looked)


def _reranked(player: Searcher[EpisodeT], beam: Sequence[Member[EpisodeT]]) -> list[Member[EpisodeT]]:
    """The members, those that weigh most first; what is too unlikely is not rated, since that takes time."""
    likeliest = max(member.log_likelihood for member in beam)
    near = [member for member in beam if member.log_likelihood > likeliest - UNLIKELY]
    far = [member for member in beam if member.log_likelihood <= likeliest - UNLIKELY]
    ratings = player.rate([member.episode for member in near]) if len(near) > 1 else [0.0]
    rated = [replace(member, rating=rating) for member, rating in zip(near, ratings, strict=True)]
    rated += [replace(member, rating=min(ratings)) for member in far]
    return sorted(rated, key=lambda member: member.weight, reverse=True)


def _continued(
    member: Member[EpisodeT], branches: Branches[EpisodeT], width: int
) -> Iterator[Member[EpisodeT]]:
    """A member with its likeliest turns; those that decline only as the module says."""
    presence = min(member.presence, max(0.0, 1 - branches.declining))
    rest = (Member(copy, presence) for copy in branches.copies)
    for first in rest:
        yield first
        if not first.declines:
            yield from islice((other for other in rest if not other.declines), width - 1)
        return


def _search(best: Member[EpisodeT], beam: Beam[EpisodeT], found: Trajectory) -> Search:
    """What is kept of a search.

    Args:
        found: the best episode.
    """
    return Search(
        _share(best, beam.members),
        best.presence,
        turns=len(beam.read) - len(found.turns),
        prompt_tokens=sum(beam.read) - sum(turn.start for turn in found.turns),
        actions=max(0, beam.executed - len(list(found.actions))),
    )


def _tell(listener: Listener, found: Trajectory) -> None:
    for turn in found.turns:
        listener.wrote(0, turn, turn.actions)
        listener.took(0, turn)


def _expire(members: Iterable[Member[EpisodeT]]) -> None:
    for member in members:
        member.episode.expire()


def _share(best: Member[EpisodeT], members: Sequence[Member[EpisodeT]]) -> float:
    """The share of the beam's weight that is in episodes with the best one's answers."""
    heaviest = max(member.weight for member in members)
    weights = [(math.exp(member.weight - heaviest), member.answers) for member in members]
    same = sum(weight for weight, answers in weights if answers == best.answers)
    return same / sum(weight for weight, _ in weights)
