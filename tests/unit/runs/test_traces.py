"""What rollouts said, kept as text: what is in it, how much of it, and for how long."""

from __future__ import annotations

import random

import pytest

from kbqa.advantages import Advantage
from kbqa.errors import RunError
from kbqa.recipes import load_recipe
from kbqa.runs import traces as module
from kbqa.runs.traces import Traces, kept_steps
from kbqa.runs.transcripts import trace
from kbqa.trajectory import Group, RewardedTrajectory, Status, Trajectory
from tests.services.trainer.made_runs import CODEC, HOSTILE, QUESTION, group, made_turn, tree

GROUP_KIND = Advantage("group")


def two_episodes() -> Group:
    """One that fails and then answers, and one that answers at once; rewards 1 + 0 and 0 + 2."""
    first = (made_turn(8, Status.ACTION_ERROR, code="KG_NO_RESULTS"), made_turn(14, Status.ANSWERED))
    second = (made_turn(8, Status.ANSWERED),)
    members = (
        RewardedTrajectory(
            Trajectory(tuple(range(18)), first, Status.ANSWERED, ("Ann",)), (1.0, 0.0), 0.0, {"f1": 0.0}
        ),
        RewardedTrajectory(
            Trajectory(tuple(range(12)), second, Status.OUT_OF_TURNS, ("Bob",)), (0.0,), 2.0, {"f1": 1.0}
        ),
    )
    return Group("t0000001", QUESTION, members)


def test_a_group_as_text():
    traced = trace(3, "trained", two_episodes(), GROUP_KIND, CODEC)
    summary = traced.summary
    assert (summary.id, summary.step, summary.kind, summary.outcome) == ("t0000001", 3, "linear", "trained")
    assert (summary.episodes, summary.turns) == (2, 3)
    assert summary.statuses == {"answered": 1, "out_of_turns": 1}
    assert (summary.reward, summary.f1, summary.best_f1) == (1.5, 0.5, 1.0)
    assert [turn.parent for turn in traced.turns] == [None, 0, None]
    assert [episode.last for episode in traced.episodes] == [1, 2]
    assert [turn.reward for turn in traced.turns] == [1.0, 0.0, 0.0]
    # Mean turn reward plus outcome is 0.5 and 2: one deviation below and above, for all their turns.
    assert [turn.advantage for turn in traced.turns] == pytest.approx([-1, -1, 1], abs=1e-4)
    failed = traced.turns[0].actions[0]
    assert (failed.name, failed.code, failed.found, failed.labels) == (
        "get_tail_entities",
        "KG_NO_RESULTS",
        0,
        [],
    )
    assert traced.turns[0].logprob == -0.5
    assert traced.prompt == CODEC.decode(range(8))
    assert traced.gold == list(QUESTION.answers)


def test_a_group_without_spread_has_no_advantages():
    member = two_episodes().members[1]
    traced = trace(1, "no_spread", Group("g", QUESTION, (member, member)), GROUP_KIND, CODEC)
    assert [turn.advantage for turn in traced.turns] == [None, None]


def test_a_tree_keeps_its_shape():
    rewarded = tree(random.Random(1), "t0000002")
    advantage = load_recipe("isp-kgr").advantage.build()
    traced = trace(1, "trained", rewarded, advantage, CODEC)
    assert traced.summary.kind == "tree"
    assert traced.sampled == rewarded.tree.sampled
    assert [turn.parent for turn in traced.turns] == [step.parent for step in rewarded.tree.steps]
    assert [episode.last for episode in traced.episodes] == rewarded.tree.leaves
    credited = {i: turn.advantage for i, turn in enumerate(traced.turns) if turn.advantage is not None}
    assert credited == advantage.of_steps(rewarded)
    best = max(rewarded.components[end]["f1"] for end in rewarded.tree.ends)
    assert traced.summary.best_f1 == best


def test_an_episode_without_a_turn_has_no_end():
    """Its question filled the whole budget."""
    empty = RewardedTrajectory(Trajectory((1, 2), (), Status.OUT_OF_TOKENS), (), 0.0, {"f1": 0.0})
    traced = trace(1, "no_spread", Group("g", QUESTION, (empty,)), GROUP_KIND, CODEC)
    assert (traced.turns, traced.episodes[0].last) == ([], None)
    assert traced.prompt == CODEC.decode([1, 2])


def test_what_was_written_is_read_again(tmp_path):
    traces = Traces(tmp_path / "groups", 10)
    groups = [trace(4, "trained", group(random.Random(i), f"t{i}", 0.5), GROUP_KIND, CODEC) for i in range(3)]
    traces.write(4, "v", groups)
    header = traces.step(4)
    assert header is not None
    assert header.groups == [one.summary for one in groups]
    assert HOSTILE in header.groups[0].question
    assert [traces.group(4, one.summary.id) for one in groups] == groups
    assert traces.group(4, "t9") is None
    assert traces.step(5) is None
    assert traces.group(5, "t1") is None


def test_long_texts_are_cut_and_half_a_surrogate_is_replaced(tmp_path):
    turn = made_turn(8, Status.ANSWERED, said="x" * 100_000 + "\ud83d")
    member = RewardedTrajectory(
        Trajectory(tuple(range(12)), (turn,), Status.ANSWERED, ("\udc00",)), (0.0,), 0.0, {"f1": 0.0}
    )
    traced = trace(1, "no_spread", Group("g", QUESTION, (member,)), GROUP_KIND, CODEC)
    assert len(traced.turns[0].text) < 4100
    assert "100001 characters" in traced.turns[0].text
    Traces(tmp_path, 1).write(1, "v", [traced])
    assert Traces(tmp_path, 1).group(1, "g") == traced


def test_a_step_that_is_too_large_keeps_the_summaries_of_all(tmp_path, monkeypatch):
    groups = [trace(1, "trained", group(random.Random(i), f"t{i}", 0.5), GROUP_KIND, CODEC) for i in range(3)]
    monkeypatch.setattr(module, "_MOST_BYTES", len(groups[0].model_dump_json().encode()) + 10)
    traces = Traces(tmp_path, 10)
    traces.write(1, "v", groups)
    assert [(one.id, one.kept) for one in traces.step(1).groups] == [
        ("t0", True),
        ("t1", False),
        ("t2", False),
    ]
    assert traces.group(1, "t0") == groups[0]
    assert traces.group(1, "t1") is None


def test_old_steps_go_farther_and_farther_apart(tmp_path):
    traces = Traces(tmp_path / "groups", 9)
    for step in range(1, 101):
        traces.write(step, "v", [])
    kept = traces.steps()
    assert len(kept) <= 9
    assert kept[-3:] == [98, 99, 100]
    assert kept[:-3] == [16, 32, 48, 64, 80, 96]
    assert kept_steps(range(1, 9), 9) == set(range(1, 9))


def test_a_restore_takes_back_what_it_has_undone(tmp_path):
    traces = Traces(tmp_path, 9)
    for step in range(1, 6):
        traces.write(step, "v", [])
    traces.forget_after(3)
    assert traces.steps() == [1, 2, 3]


def test_nothing_is_kept_if_nobody_wants_it(tmp_path):
    Traces(tmp_path / "groups", 0).write(1, "v", [])
    assert Traces(tmp_path / "groups", 0).steps() == []


def test_a_damaged_file_says_so(tmp_path):
    Traces(tmp_path, 9).write(1, "v", [])
    (file,) = tmp_path.iterdir()
    for damage in (file.read_bytes()[:-9], b"no gzip"):
        file.write_bytes(damage)
        with pytest.raises(RunError, match="damaged; remove it"):
            Traces(tmp_path, 9).step(1)
