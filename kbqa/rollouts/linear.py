"""Linear rollouts: N independent episodes of one question, advanced together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from kbqa.rollouts.agent import EpisodeT, Player, Sampling, take_turn
from kbqa.trajectory import Question, Trajectory, Turn

TurnListener = Callable[[int, Turn], None]
"""Called with the number of the run and each turn when it is complete."""


def linear_rollout(
    player: Player[EpisodeT],
    question: Question,
    n: int,
    temperature: float,
    *,
    seed: int | None = None,
    deadline: float | None = None,
    cancelled: threading.Event | None = None,
    on_turn: TurnListener | None = None,
) -> list[Trajectory]:
    """Roll out `n` trajectories of one question.

    All episodes that still run share one call of the policy and one of the graph a turn.

    Args:
        temperature: 0 is greedy.
        seed: makes the samples repeatable; each turn draws from its own stream.
        deadline: `time.monotonic()` after which episodes that still run time out.
        cancelled: times them out once it is set.

    Raises:
        PolicyUnavailableError, PolicyRefusedError, GraphNotFoundError, GraphUnavailableError:
            nothing is salvaged, since a group is whole or not at all.
    """
    episodes = [player.begin(question) for _ in range(n)]
    turn = 0
    while running := [(run, episode) for run, episode in enumerate(episodes) if not episode.done]:
        late = deadline is not None and monotonic() > deadline
        if late or (cancelled is not None and cancelled.is_set()):
            for _, episode in running:
                episode.expire()
            break
        sampling = Sampling(turn, temperature, seed, deadline, cancelled)
        take_turn(player, question, [episode for _, episode in running], sampling)
        if on_turn is not None:
            for run, episode in running:
                if len(episode.turns) > turn:  # one whose reply did not come has no such turn
                    on_turn(run, episode.turns[-1])
        turn += 1
    return [episode.trajectory() for episode in episodes]
