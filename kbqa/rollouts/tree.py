"""Tree rollouts (ISP-KGR, 4.3.1 and appendix F): K branches at every state, without redundant ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal

from kbqa.answers import answer_set
from kbqa.environment import Episode
from kbqa.kg.actions import ActionResult, Failure, Item
from kbqa.rollouts.agent import Agent, Sampling, consult, require_one
from kbqa.rollouts.query_cache import QueryCache
from kbqa.trajectory import Question, Status
from kbqa.tree import Step, Tree

Pruning = Literal["parent", "tree", "none"]
Beyond = Literal["stop", "single"]

_UNWRITTEN = (Status.LOST, Status.TIMED_OUT)  # of an episode whose turn the engine did not complete


@dataclass(frozen=True, slots=True)
class Branching:
    """How a tree grows.

    Attributes:
        k: branches that are sampled at each state.
        max_active: maximum states of a level that branch; if there are more, every parent keeps some.
        max_nodes: maximum steps of a tree.
        beyond: what the other states of a level do. `stop` ends there; what would have come of them is
            unknown, and they are not compared with their siblings. `single` goes on with one branch each, so
            that a group is all branches of a state, as in the paper (4.3.2).
        pruning: `parent` compares branches with their siblings (F.5), `tree` with the whole tree
            (Algorithm 1's state cache); answers are compared with siblings only. `none` keeps all
            (table 2, without the success filter). Of branches that saw the same, the first well-formed one
            stays, so that a malformed twin of it is lost as a negative.
        filter_errors: whether only one of the failures with the same observation is kept (table 2, with
            the error filter); otherwise all are.
    """

    k: int
    max_active: int
    max_nodes: int
    pruning: Pruning = "parent"
    beyond: Beyond = "stop"
    filter_errors: bool = False


@dataclass(frozen=True, slots=True)
class _Branch:
    """An episode at a leaf of the tree; `step` led there, None at the root."""

    step: int | None
    episode: Episode


def tree_rollout(
    agent: Agent,
    question: Question,
    branching: Branching,
    temperature: float,
    *,
    seed: int | None = None,
    deadline: float | None = None,
) -> Tree:
    """Roll out a tree of one question, as deep as the agent's budget has turns.

    All states of a level share one call of the policy and one of the graph. A branch that fails
    (it cannot be parsed or executed, or finds nothing) ends there, and is always kept.

    Args:
        seed: as in `linear_rollout`; the errors are the same, too.
        deadline: `time.monotonic()` after which the tree grows no further, as at a cap; it then says that it
            timed out. Branches that are not complete by then, or that the engine loses, are left out.
    """
    agent = replace(agent, tools=QueryCache(agent.tools))
    root = agent.begin(question)
    consult(agent.tools, question, [root])
    prompt_ids, steps, sampled = tuple(root.token_ids), list[Step](), 0
    redundancy = _Redundancy(branching.pruning, filter_errors=branching.filter_errors)
    timed_out, lost = False, 0
    active = [] if root.done else [_Branch(None, root)]
    for level in range(agent.budget.max_turns):
        parents = _parents(_spread(active, steps), branching, branching.max_nodes - len(steps))
        timed_out = bool(parents) and deadline is not None and monotonic() > deadline
        if timed_out or not parents:
            break
        children = [_Branch(p.step, p.episode.fork()) for p in parents]
        episodes = [child.episode for child in children]
        agent.speak(episodes, Sampling(level, temperature, seed, deadline))
        if not steps:
            require_one(episodes)
        lost += sum(episode.status is Status.LOST for episode in episodes)
        timed_out = any(episode.status is Status.TIMED_OUT for episode in episodes)
        children = [child for child in children if child.episode.status not in _UNWRITTEN]
        consult(agent.tools, question, [child.episode for child in children])
        sampled += len(children)
        active = []
        for child in redundancy.kept(children):
            steps.append(_step(child))
            if steps[-1].status is None:
                active.append(_Branch(len(steps) - 1, child.episode))
        if timed_out:
            break
    return Tree(prompt_ids, tuple(steps), sampled, timed_out, lost)


def _parents(states: Sequence[_Branch], branching: Branching, room: int) -> list[_Branch]:
    """The state of each branch of the next level: some `k` times, and the others once or never.

    Args:
        room: maximum branches of the level.
    """
    wide = min(len(states), branching.max_active, room // branching.k)
    narrow = room - wide * branching.k if branching.beyond == "single" else 0
    branched = [state for state in states[:wide] for _ in range(branching.k)]
    return branched + list(states[wide:][:narrow])


class _Redundancy:
    """Keeps one of the branches that saw the same, and all that failed; without pruning, keeps all."""

    def __init__(self, within: Pruning, *, filter_errors: bool) -> None:
        self._within, self._filter_errors = within, filter_errors
        self._seen: set[tuple[int | None, str]] = set()

    def kept(self, children: Sequence[_Branch]) -> list[_Branch]:
        """The branches of a level to keep, in their order; of equal branches, the first well-formed one."""
        chosen: dict[tuple[int | None, str], int] = {}
        kept: list[int] = []
        for position, child in enumerate(children):
            key = self._key(child)
            if key is None:
                kept.append(position)
            elif key not in self._seen:
                rival = chosen.setdefault(key, position)
                if _well_formed(child) and not _well_formed(children[rival]):
                    chosen[key] = position
        self._seen |= chosen.keys()
        return [children[position] for position in sorted([*kept, *chosen.values()])]

    def _key(self, child: _Branch) -> tuple[int | None, str] | None:
        """What a branch saw, and with which branches that is compared; None if it is always kept."""
        episode = child.episode
        if self._within == "none":
            return None
        if episode.status is Status.ANSWERED:
            answers = sorted(answer_set(answer.text for answer in episode.answers))
            return child.step, f"answers {json.dumps(answers)}"
        observation = _observation(episode)
        if observation is None:
            return (child.step, f"failed {episode.turns[-1].observation}") if self._filter_errors else None
        return (child.step if self._within == "parent" else None), observation


def _observation(episode: Episode) -> str | None:
    """The results of the last turn, serialised and sorted (F.5); None if it failed or found nothing."""
    if episode.turns[-1].status is not Status.OK or any(isinstance(r, Failure) for r in episode.results):
        return None
    found = [text for result in episode.results for text in _serialised(result)]
    return "\n".join(sorted(found)) if found else None


def _serialised(result: ActionResult) -> Iterator[str]:
    if isinstance(result, Failure):
        return
    if "boolean" in result.details:
        yield json.dumps(result.details["boolean"])
    for item in result.items:
        yield json.dumps(_identity(item), sort_keys=True, default=str)


def _identity(item: Any) -> Any:
    """What identifies an item; for a row, its ids in order, whatever its variables are called."""
    if isinstance(item, Item):
        return item.id
    if "line" in item:  # a relation around a node, whatever its score
        return item["line"]
    return [term.get("id", term["value"]) if isinstance(term, Mapping) else term for term in item.values()]


def _well_formed(branch: _Branch) -> bool:
    return branch.episode.turns[-1].well_formed


def _step(branch: _Branch) -> Step:
    episode = branch.episode
    turn, status = episode.turns[-1], episode.status
    if status is None and _observation(episode) is None:
        status = Status.ACTION_ERROR if turn.status is Status.OK else turn.status
    return Step(
        branch.step,
        tuple(episode.token_ids[turn.start :]),
        turn,
        status,
        tuple(answer.text for answer in episode.answers),
        tuple(answer.ids for answer in episode.answers),
    )


def _spread(active: Sequence[_Branch], steps: Sequence[Step]) -> list[_Branch]:
    """States in an order in which a cap takes equally many of every parent."""
    ranks: Counter[int | None] = Counter()

    def rank(branch: _Branch) -> int:
        parent = None if branch.step is None else steps[branch.step].parent
        ranks[parent] += 1
        return ranks[parent]

    return sorted(active, key=rank)
