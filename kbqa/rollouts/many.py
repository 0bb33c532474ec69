"""One episode for each of many questions, a number of them advanced together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from kbqa.environment import Play
from kbqa.rollouts.agent import EpisodeT, Player, Sampling, consult
from kbqa.trajectory import Question, Trajectory


def many_rollouts(
    player: Player[EpisodeT],
    questions: Iterable[Question],
    temperature: float,
    *,
    width: int = 64,
    seed: int | None = None,
) -> Iterator[tuple[int, Trajectory]]:
    """Roll out one trajectory of each question; an episode that ends makes room for the next.

    All episodes under way share one call of the policy a turn, and one of each graph.

    Args:
        temperature: 0 is greedy.
        width: most episodes under way, which bounds memory however many questions there are.
        seed: makes the samples repeatable, for the same questions in the same order.

    Yields:
        The place of a question and its trajectory, as they end.

    Raises:
        PolicyUnavailableError, PolicyRefusedError, GraphNotFoundError, GraphUnavailableError: what
            has been yielded stays good.
    """
    waiting = iter(enumerate(questions))
    running: list[tuple[int, EpisodeT]] = []
    turn = 0
    while True:
        running += [
            (place, player.begin(question)) for place, question in islice(waiting, width - len(running))
        ]
        if not running:
            return
        # A question may be too long for a single turn.
        if spoken := [episode for _, episode in running if not episode.done]:
            player.speak(spoken, Sampling(turn, temperature, seed))
            _consult(player, spoken)
        yield from ((place, episode.trajectory()) for place, episode in running if episode.done)
        running = [(place, episode) for place, episode in running if not episode.done]
        turn += 1


def _consult(player: Player[EpisodeT], episodes: Sequence[Play]) -> None:
    """Ask each graph, or subgraph of a question, what the episodes about it want to know."""
    places: dict[tuple[str, str | None], list[Play]] = {}
    for episode in episodes:
        places.setdefault((episode.question.kg, episode.question.graph), []).append(episode)
    for about in places.values():
        consult(player.tools, about[0].question, about)
