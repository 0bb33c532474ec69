"""Curves of episodes and questions, on examples worked out by hand."""

from __future__ import annotations

import pytest

from kbqa.curves import episode_means, error_reward_points, question_means, tree_means
from kbqa.curves.episodes import invalid_calls, setbacks
from kbqa.trajectory import ExecutedAction, Group, RewardedTrajectory, Status, Trajectory
from kbqa.tree import RewardedTree, Step, Tree
from tests.unit.episodes import query, question, turn

NOT_FOUND = query(code="KG_ENTITY_NOT_FOUND")
NOTHING_THERE = query(code="KG_NO_RESULTS")
EMPTY = query(found=())
BUSY = ExecutedAction("get_tail_entities", {}, "KG_SERVER_ERROR", kind="overloaded")


def sparql(text, code=None):
    names = () if code else ("Byron",)
    return ExecutedAction(
        "execute_sparql", {"query": text}, code, names, names, "query_syntax" if code else None
    )


def episode(*actions, hit=1.0, f1=1.0, reward=1.0, misread=0, status=Status.ANSWERED):
    """A turn of four tokens for each action, after those that could not be understood; then the answer."""
    kinds = [(Status.UNPARSABLE, ())] * misread
    kinds += [(Status.OK if a.code is None else Status.ACTION_ERROR, (a,)) for a in actions]
    kinds.append((Status.ANSWERED, ()))
    turns = [turn(5 * i + 1, 5 * i + 5, status=s, actions=a) for i, (s, a) in enumerate(kinds)]
    trajectory = Trajectory(tuple(range(5 * len(turns))), tuple(turns), status)
    return RewardedTrajectory(trajectory, (0.0,) * len(turns), reward, {"f1": f1, "hit": hit})


def test_an_invalid_call_is_the_agents_own_fault():
    played = episode(query(), NOT_FOUND, NOTHING_THERE, EMPTY, BUSY, misread=1)
    # The turn that was not understood, and the entity that is not there.
    assert invalid_calls(played.trajectory) == 2
    # Those, the two that found nothing, and the busy graph.
    assert setbacks(played.trajectory) == 5


def test_means_over_episodes():
    means = episode_means(
        [
            episode(query(), reward=2.0),  # directly hit: 2 turns
            episode(NOTHING_THERE, query(), reward=1.0),  # recovered: 3 turns
            episode(NOT_FOUND, hit=0.0, f1=0.0, reward=0.0),  # 2 turns
            episode(misread=1, hit=0.0, f1=0.0, reward=0.0, status=Status.OUT_OF_TURNS),  # 2 turns
        ]
    )
    assert means == {
        "reward": 0.75,
        "f1": 0.5,
        "hit": 0.5,
        "turns": 9 / 4,
        "generated_tokens": 4 * 9 / 4,
        "answered": 0.75,
        "invalid_actions": 3 / 9,
        "invalid_calls": 2 / 4,
        "direct": 0.25,
        "recovered": 0.25,
        "incorrect": 0.5,
    }
    assert episode_means([]) == {}


def test_executability_counts_all_queries_together():
    """Learning-to-Refine, section 4.5: three of four; the mean over episodes would be 5/6."""
    played = [episode(sparql("a"), sparql("b"), sparql("c", "KG_FORMAT_ERROR")), episode(sparql("d"))]
    assert episode_means(played)["executability"] == 3 / 4


def test_unique_final_queries_of_a_question():
    """Layout and comments are no difference, and only the last query of an episode counts."""
    select, other = "SELECT ?x WHERE { ?x ?p ?o }", "SELECT ?y WHERE { ?y ?p ?o }"
    first = [
        episode(sparql(other), sparql(select)),
        episode(sparql("SELECT ?x  # why\nWHERE { ?x ?p ?o }")),
        episode(sparql(other)),
        episode(),  # answered at once
    ]
    second = [episode(sparql("no SPARQL at all"), query())]
    assert question_means([first, second, []])["unique_queries"] == (2 + 1) / 2
    assert question_means([[episode(query("parent")), episode(query("child"))]])["unique_queries"] == 2


def test_success_is_a_question_with_an_episode_that_is_all_right():
    right, partly, wrong = episode(), episode(f1=0.5), episode(f1=0.0, hit=0.0)
    assert question_means([[right, wrong], [partly, wrong], [right]])["success"] == pytest.approx(2 / 3)
    assert question_means([[], []]) == {}


def test_errors_against_reward_are_a_point_a_question():
    first = [episode(NOT_FOUND, EMPTY, reward=0.0), episode(query(), reward=1.0)]
    assert error_reward_points([first, [], [episode(reward=2.0)]]) == [(1.0, 0.5), (0.0, 2.0)]


def test_branches_and_pruning_of_trees():
    """Eight branches were sampled at two states, five were kept; the last is at a cap."""
    steps = [
        Step(parent, (1,), turn(1, 1), status)
        for parent, status in (
            (None, None),
            (None, Status.ANSWERED),
            (None, Status.ACTION_ERROR),
            (0, Status.ANSWERED),
            (0, None),
        )
    ]
    tree = RewardedTree("t", question(), Tree((0,), tuple(steps), 8), (0.0,) * 5, ({"f1": 0.0},) * 5)
    assert tree_means([tree]) == {"branches": 2.5, "pruned": 3 / 8, "unexplored": 1}
    assert tree_means([Group("g", question(), (episode(),))]) == {}
