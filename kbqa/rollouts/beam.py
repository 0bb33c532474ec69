"""Beam search: the likeliest episode of a question, as far as a few that are played side by side show.

At each turn, every running episode is continued by its likeliest turns, and of all episodes, running and
ended, the likeliest `beam` remain. An episode is as likely as all its choices together. A policy that
declines all options is made to choose one of them afterwards, which is as likely as if it had not declined
(`kbqa.confidence`); so where its likeliest turn declines, the episode is continued by this one alone, and
otherwise by none that declines.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from kbqa.answers import answer_set
from kbqa.confidence import log_likelihoods
from kbqa.environment.play import Play
from kbqa.policies.base import is_unwanted
from kbqa.rollouts.agent import EpisodeT, Player, Sampling, Searcher, consult
from kbqa.rollouts.linear import Listener, linear_rollout
from kbqa.rollouts.query_cache import QueryCache
from kbqa.trajectory import Question, Search, Status, Trajectory, declines


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
        listener: is told about the turns of the likeliest episode once that is known.

    Returns:
        The likeliest episode that answers; if none does, the likeliest.

    Raises:
        PolicyUnavailableError, GraphNotFoundError, GraphUnavailableError: the question cannot be played.
    """
    tools = QueryCache(player.tools)
    beam = [player.begin(question)]
    consult(tools, question, beam)
    looked, read = tools.executed, list[int]()  # tokens before each turn that the policy wrote
    turn = 0
    while running := [episode for episode in beam if not episode.done]:
        if is_unwanted(deadline, cancelled):
            _expire(running)
            break
        branches = player.branch(running, Sampling(turn, 0.0, None, deadline, cancelled))
        grown = [list(_continued(copies, player.beam)) for copies in branches]
        if not any(grown):  # no turn came in time
            _expire(running)
            break
        read += (likeliest.turns[-1].start for likeliest, *_ in filter(None, grown))
        ended = [episode for episode in beam if episode.done]
        beam = sorted([*ended, *chain(*grown)], key=_log_likelihood, reverse=True)[: player.beam]
        turn += 1
        consult(tools, question, beam)
    best = next((episode for episode in beam if episode.status is Status.ANSWERED), beam[0])
    found = best.trajectory()
    if listener is not None:
        for turn_of_best in found.turns:
            listener.wrote(0, turn_of_best, turn_of_best.actions)
            listener.took(0, turn_of_best)
    search = Search(
        _share(best, beam),
        turns=len(read) - len(found.turns),
        prompt_tokens=sum(read) - sum(one.start for one in found.turns),
        actions=max(0, tools.executed - looked - len(list(found.actions))),  # equal ones are executed once
    )
    return replace(found, search=search)


def _continued(copies: Iterable[EpisodeT], width: int) -> Iterator[EpisodeT]:
    """The likeliest copies of an episode; those that decline only as the module says."""
    rest = iter(copies)
    for first in rest:
        yield first
        if not _declines(first):
            yield from islice((copy for copy in rest if not _declines(copy)), width - 1)
        return


def _declines(episode: Play) -> bool:
    return declines(episode.turns[-1].thought)


def _log_likelihood(episode: Play) -> float:
    return sum(log_likelihoods(episode.turns))


def _expire(episodes: Iterable[Play]) -> None:
    for episode in episodes:
        episode.expire()


def _share(best: Play, beam: Sequence[Play]) -> float:
    """The share of the beam's probability that is in episodes with the best one's answers."""
    likeliest = max(map(_log_likelihood, beam))
    weights = [(math.exp(_log_likelihood(one) - likeliest), _answers(one)) for one in beam]
    same = sum(weight for weight, answers in weights if answers == _answers(best))
    return same / sum(weight for weight, _ in weights)


def _answers(episode: Play) -> frozenset[str]:
    return answer_set(answer.text for answer in episode.answers)
