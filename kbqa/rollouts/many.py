"""Plays one episode for each of many questions, several at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count, islice

from kbqa.errors import PolicyUnavailableError
from kbqa.rollouts.agent import EpisodeT, Player
from kbqa.rollouts.beam import answering_rollout
from kbqa.trajectory import Question, Trajectory

_ATTEMPTS = 3  # of an episode that the engine loses


def many_rollouts(
    player: Player[EpisodeT],
    questions: Iterable[Question],
    temperature: float,
    *,
    width: int = 64,
    seed: int | None = None,
) -> Iterator[tuple[int, Trajectory]]:
    """Roll out one trajectory of each question; one that ends makes room for the next.

    Each episode continues as soon as its own turn is over. The policy computes them together: it takes
    calls from many threads and batches them, turn by turn or token by token.

    Args:
        temperature: 0 is greedy.
        width: maximum episodes at a time, which bounds memory for any number of questions.
        seed: makes the samples repeatable, for the same questions in the same order.

    Yields:
        The index of a question and its trajectory, in the order in which episodes end.

    Raises:
        PolicyUnavailableError: the engine has lost an episode several times.
        PolicyRefusedError, GraphNotFoundError, GraphUnavailableError: an episode cannot be played.
            Trajectories that were yielded before remain valid, in each case.
    """
    waiting, cancelled = iter(enumerate(questions)), threading.Event()

    def play(place: int, question: Question) -> Trajectory:
        stream = None if seed is None else random.Random(f"{seed}/{place}").getrandbits(31)
        attempts = count(1)
        while True:
            try:
                return answering_rollout(player, question, temperature, seed=stream, cancelled=cancelled)
            except PolicyUnavailableError:
                if next(attempts) == _ATTEMPTS or cancelled.is_set():
                    raise

    with ThreadPoolExecutor(width, thread_name_prefix="episode") as pool:
        places: dict[Future[Trajectory], int] = {}
        try:
            while True:
                for place, question in islice(waiting, width - len(places)):
                    places[pool.submit(play, place, question)] = place
                if not places:
                    return
                for ended in wait(places, return_when=FIRST_COMPLETED).done:
                    yield places.pop(ended), ended.result()
        finally:
            cancelled.set()  # after an error, or if the caller wants no more
