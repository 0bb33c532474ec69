"""Episodes of one question that branch, as exact token ids: steps, trees, and what is compared in them.

A tree branches at every turn, and stores shared prefixes once:

    prompt | turn | observation | turn | observation      steps 0 and 2
                                | turn                    step 3, at the same state as step 2
           | turn                                         step 1, at the same state as step 0
"""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.trajectory import Group, Question, RewardedTrajectory, Status, TrainingSample, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Step:
    """One branch of a tree: a turn taken at the state to which another step led.

    Attributes:
        parent: index of the other step; None at the initial state, which is the question.
        token_ids: tokens of the turn and of the observation after it.
        turn: its range counts positions from the root of the tree.
        status: how the episode ended with this step; None if it continues, or was stopped by a cap or
            deadline.
        answers, answer_ids: as in a trajectory.
    """

    parent: int | None
    token_ids: tuple[int, ...]
    turn: Turn
    status: Status | None = None
    answers: tuple[str, ...] = ()
    answer_ids: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """Episodes of one question that share prefixes.

    Attributes:
        prompt_ids: tokens before the first turn.
        steps: all branches that were kept; parents come before their children.
        sampled: number of branches before pruning.
        timed_out: whether its time was over before it was fully grown.
        lost: branches that the engine failed to complete; they are not among the steps.
    """

    prompt_ids: tuple[int, ...]
    steps: tuple[Step, ...]
    sampled: int
    timed_out: bool = False
    lost: int = 0

    def path(self, index: int) -> list[int]:
        """Indices of the steps from the root to a step, the step itself included."""
        path, at = [index], self.steps[index].parent
        while at is not None:
            path.append(at)
            at = self.steps[at].parent
        return path[::-1]

    def trajectory(self, index: int) -> Trajectory:
        """The episode from the root to a step; its status is OK if the episode continues."""
        steps = [self.steps[at] for at in self.path(index)]
        token_ids = (*self.prompt_ids, *(token for step in steps for token in step.token_ids))
        turns, last = tuple(step.turn for step in steps), steps[-1]
        return Trajectory(token_ids, turns, last.status or Status.OK, last.answers, last.answer_ids)

    @property
    def states(self) -> dict[int | None, list[int]]:
        """Index of the step that led to a state → the steps taken there."""
        states: dict[int | None, list[int]] = {}
        for index, step in enumerate(self.steps):
            states.setdefault(step.parent, []).append(index)
        return states

    @property
    def ends(self) -> list[int]:
        """The steps with which an episode ended."""
        return [index for index, step in enumerate(self.steps) if step.status is not None]

    @property
    def leaves(self) -> list[int]:
        """The steps without children: those that ended an episode, and those stopped by a cap."""
        states = self.states
        return [index for index in range(len(self.steps)) if index not in states]

    @property
    def unexplored(self) -> list[int]:
        """The steps with unknown outcome: no episode through them came to an end."""
        ended = {index for end in self.ends for index in self.path(end)}
        return [index for index in range(len(self.steps)) if index not in ended]


@dataclass(frozen=True, slots=True)
class Siblings:
    """Steps that were taken at the same state, and are compared with each other.

    Attributes:
        id: `<id of the tree>/<state>`; state 0 is the question, state k + 1 is the one after step k.
        steps: indices into the tree.
    """

    id: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RewardedTree:
    """A tree with its rewards.

    Attributes:
        rewards: of each step.
        components: of each step; if it ended an episode, the components of a trajectory, including `f1`.
    """

    id: str
    question: Question
    tree: Tree
    rewards: tuple[float, ...]
    components: tuple[dict[str, float], ...]

    @property
    def groups(self) -> list[Siblings]:
        """The siblings at each state, without steps of unknown outcome."""
        unexplored = frozenset(self.tree.unexplored)
        groups = []
        for parent, steps in self.tree.states.items():
            known = tuple(index for index in steps if index not in unexplored)
            if known:
                groups.append(Siblings(f"{self.id}/{0 if parent is None else parent + 1}", known))
        return groups

    @property
    def members(self) -> tuple[RewardedTrajectory, ...]:
        """Every episode that came to an end."""
        return tuple(
            RewardedTrajectory(
                self.tree.trajectory(end),
                tuple(self.rewards[at] for at in self.tree.path(end)),
                0.0,
                self.components[end],
            )
            for end in self.tree.ends
        )

    @property
    def policy_versions(self) -> frozenset[str]:
        return frozenset(step.turn.policy_version for step in self.tree.steps)


ScoredRollout = Group | RewardedTree
"""The result of one rollout, with rewards."""


def step_sample(tree: Tree, index: int, advantage: float) -> TrainingSample:
    """The path to a step of a tree; only the step's own turn carries the advantage."""
    turn = tree.steps[index].turn
    token_ids = tree.trajectory(index).token_ids[: turn.end]
    before, length = turn.start, turn.end - turn.start
    return TrainingSample(
        token_ids,
        (False,) * before + (True,) * length,
        (0.0,) * before + turn.logprobs,
        (0.0,) * before + (advantage,) * length,
    )
