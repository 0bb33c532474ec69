"""Small factories that several tests share."""

from __future__ import annotations

from collections.abc import Sequence

from kbqa.trajectory import ExecutedAction, Question, RewardedTrajectory, Status, Trajectory, Turn


def question(*answers: str, topic: str = "Ada", text: str = "who ?") -> Question:
    return Question("q1", text, answers or ("Byron",), (topic,), "world")


def turn(
    start: int,
    end: int,
    *,
    status: Status = Status.OK,
    well_formed: bool = True,
    actions: Sequence[ExecutedAction] = (),
    version: str = "v000001-00000000",
) -> Turn:
    logprobs = tuple(-0.5 for _ in range(end - start))
    return Turn(
        start,
        end,
        logprobs,
        "",
        status,
        well_formed=well_formed,
        actions=tuple(actions),
        policy_version=version,
    )


def query(
    relation: str = "parent", found: Sequence[str] = ("Byron",), code: str | None = None
) -> ExecutedAction:
    names = () if code else tuple(found)
    arguments = {"entity": "Ada", "relation": relation}
    return ExecutedAction("get_tail_entities", arguments, code, names, names)


def rewarded(turn_rewards: Sequence[float], outcome: float, length: int = 4) -> RewardedTrajectory:
    """Turns of `length` tokens, each after one token that the policy did not write."""
    turns = tuple(turn(i * (length + 1) + 1, (i + 1) * (length + 1)) for i in range(len(turn_rewards)))
    tokens = tuple(range(len(turn_rewards) * (length + 1)))
    trajectory = Trajectory(tokens, turns, Status.ANSWERED)
    return RewardedTrajectory(trajectory, tuple(turn_rewards), outcome, {"f1": outcome})


class Heard:
    """Listens to a rollout.

    Attributes:
        written: of each turn its run, and the names of the actions that it asked for first.
        turns: the complete turns, with their runs.
    """

    def __init__(self) -> None:
        self.written: list[tuple[int, list[str]]] = []
        self.turns: list[tuple[int, Turn]] = []

    def wrote(self, run, turn, actions) -> None:
        self.written.append((run, [action.name for action in actions]))

    def took(self, run, turn) -> None:
        self.turns.append((run, turn))
