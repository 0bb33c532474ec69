"""The ablations: their design, the record of runs, and what the table makes of them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from benchmarks.learning.beginning import halving, listing_turns, merged_turns
from benchmarks.learning.design import Design, load_design
from benchmarks.learning.record import Entry, append, read
from benchmarks.learning.table import current, effect, findings_table, variants_table, verdict
from benchmarks.learning.trial import Outcome, run
from kbqa.cold_start.demonstrations import Demonstration
from kbqa.trajectory import Hop, Question

FINDING = {
    "claim": "Turn rewards",
    "paper": "KG-R1",
    "reports": "F1 10.1",
    "sign": 1,
    "has": "a",
    "lacks": "b",
}
VALUES = {
    "seeds": [1, 2, 3],
    "steps": 60,
    "max_seconds": 200,
    "variants": {
        "a": {"recipe": "kg-r1-small"},
        "b": {"recipe": "kg-r1-small", "set": {"reward.w_retrieval": 0.0}},
    },
    "findings": {"turn-rewards": FINDING},
}


def design(**changes: object) -> Design:
    return Design.model_validate({**VALUES, **changes})


def outcome(f1: float, start: float = 0.2) -> Outcome:
    return Outcome(
        f1=(f1, f1),
        hops=(1, 2),
        start=start,
        steps=60,
        sampled_tokens=1000,
        reward=(0.1,),
        demonstrations=150,
        seconds=100.0,
    )


def finished(**f1: list[float]):
    return {
        (name, seed): outcome(value) for name, values in f1.items() for seed, value in enumerate(values, 1)
    }


def test_the_shipped_design_names_recipes_and_findings_of_all_five_papers():
    shipped = load_design()
    assert {finding.paper for finding in shipped.findings.values()} == {
        *("KBQA-R1", "KG-R1", "KnowCoder-A1", "ISP-KGR", "Learning-to-Refine")
    }
    assert len(shipped.seeds) == 3
    used = {name for finding in shipped.findings.values() for name in (finding.has, finding.lacks)}
    assert used == set(shipped.variants)
    assert len({shipped.digest(name) for name in shipped.variants}) == len(shipped.variants)


def test_a_finding_about_a_variant_that_is_none_is_refused():
    with pytest.raises(ValidationError, match="there is no variant c"):
        design(findings={"x": {**FINDING, "lacks": "c"}})


def test_a_run_counts_as_long_as_its_variant_is_what_it_was(tmp_path):
    now, file = design(), tmp_path / "record.jsonl"
    append(Entry("a", 1, now.digest("a"), outcome(0.5)), file)
    append(Entry("a", 1, now.digest("a"), outcome(0.6)), file)
    append(Entry("b", 1, "of another time", outcome(0.4)), file)
    append(Entry("a", 9, now.digest("a"), outcome(0.7)), file)
    entries = list(read(file))
    assert entries[0] == Entry("a", 1, now.digest("a"), outcome(0.5))
    assert current(now, entries) == {("a", 1): outcome(0.6)}
    assert not current(design(steps=61), entries)


def test_a_damaged_record_is_named_by_its_line(tmp_path):
    file = tmp_path / "record.jsonl"
    append(Entry("a", 1, "d", outcome(0.5)), file)
    file.write_text(file.read_text() + '{"variant": "a"}\n')
    with pytest.raises(ValueError, match=r"record\.jsonl:2: "):
        list(read(file))
    assert list(read(tmp_path / "none.jsonl")) == []


def test_an_effect_has_students_interval_over_the_seeds():
    found = effect(
        design(), design().findings["turn-rewards"], finished(a=[0.50, 0.52, 0.54], b=[0.40, 0.40, 0.40])
    )
    assert found is not None
    assert found.mean == pytest.approx(0.12)
    assert found.margin == pytest.approx(4.303 * 0.02 / 3**0.5, rel=1e-3)
    assert (found.pairs, found.sign) == (3, 1)


@pytest.mark.parametrize(
    ("a", "b", "sign", "says"),
    [
        ([0.50, 0.52, 0.54], [0.40, 0.40, 0.40], 1, "same sign"),
        ([0.50, 0.52, 0.54], [0.40, 0.40, 0.40], -1, "opposite"),
        ([0.50, 0.52, 0.54], [0.40, 0.40, 0.40], 0, "helps"),
        ([0.50, 0.30, 0.54], [0.40, 0.40, 0.40], 1, "undecided"),
        ([0.50], [0.40], 1, "undecided"),
        ([0.50], [], 1, "not run yet"),
    ],
)
def test_the_verdict_waits_for_the_interval(a, b, sign, says):
    chosen = design(findings={"x": {**FINDING, "sign": sign}})
    assert verdict(sign, effect(chosen, chosen.findings["x"], finished(a=a, b=b))) == says


def test_the_gain_of_reinforcement_is_measured_against_the_start():
    chosen = design(findings={"x": {**FINDING, "measure": "gain"}})
    found = effect(chosen, chosen.findings["x"], finished(a=[0.5, 0.6, 0.7], b=[0.9, 0.9, 0.9]))
    assert found is not None
    assert found.mean == pytest.approx(0.4)


def test_the_tables_show_every_finding_and_every_variant_that_ran():
    chosen, made = design(), finished(a=[0.50, 0.52, 0.54], b=[0.40, 0.40, 0.40])
    (*_, row) = findings_table(chosen, made)
    assert row == ("| Turn rewards | KG-R1: F1 10.1 | 0.520, 0.400; +0.120 ± 0.050 | same sign |")
    assert [line.split(" |")[0] for line in variants_table(chosen, made)][2:] == ["| `a`", "| `b`"]


def test_all_actions_of_an_episode_become_one_turn():
    turns = ["<think>a</think><action>X</action>", "<think>b</think><action>Y</action>", "<answer>Z</answer>"]
    assert merged_turns(turns) == ["<think>a</think><action>X\nY</action>", "<answer>Z</answer>"]


def test_relations_are_listed_before_one_is_followed():
    look_ups = [f'<kg-query>get_tail_entities("{name}", "p.born")</kg-query>' for name in ("A, B", "C")]
    turns = ['<kg-query>get_head_entities("X", "f.by")</kg-query>', *look_ups, "<answer>1940</answer>"]
    assert list(listing_turns(turns)) == [
        '<kg-query>get_head_relations("X")</kg-query>',
        turns[0],
        '<kg-query>get_tail_relations("A, B")</kg-query>',
        *look_ups,
        turns[3],
    ]


def test_rare_hops_are_rare_or_as_frequent_as_the_others():
    def demonstration(hops: int, number: int) -> Demonstration:
        path = (Hop("likes"),) * hops
        return Demonstration(Question(f"{hops}-{number}", "?", ("x",), (), "world", path=path), (), ())

    pool = [demonstration(hops, number) for number in range(20) for hops in (3, 1, 2)]
    rare = [one.question.hops for one in halving(pool, 16, upsampled=False)]
    assert [rare.count(hops) for hops in (1, 2, 3)] == [8, 4, 2]
    shown = halving(pool, 16, upsampled=True)
    assert [[one.question.hops for one in shown].count(hops) for hops in (1, 2, 3)] == [8, 8, 8]
    assert len({one.question.id for one in shown}) == 14


TINY = {
    "rollout.max_turns": 2,
    "rollout.max_turn_tokens": 6,
    "small_policy.layers": 1,
    "small_policy.width": 16,
    "small_policy.heads": 2,
    "small_policy.feed_forward": 16,
    "small_policy.vocabulary": 400,
    "cold_start.steps": 2,
    "cold_start.batch": 2,
    "cold_start.cool_down_steps": 1,
    "schedule.questions_per_step": 2,
    "schedule.max_in_flight": 2,
}


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("kg-r1-small", {"rollout.n": 2}),
        (
            "isp-kgr-small",
            {
                "rollout.k": 2,
                "rollout.max_nodes": 4,
                "rollout.max_turns": 3,
                "small_policy.warm_up.steps": 2,
            },
        ),
    ],
)
def test_a_run_trains_evaluates_and_shares_its_beginning(tmp_path, recipe, changes):
    variant = {"recipe": recipe, "set": {**TINY, **changes}, "cold_start": {"demonstrations": 4}}
    chosen = design(steps=2, variants={"a": variant, "b": variant})
    made = run(chosen, chosen.variants["a"], 1, tmp_path)
    assert (made.steps, len(made.f1), set(made.hops)) == (2, 240, {1, 2, 3})
    assert made.sampled_tokens > 0
    assert len(made.reward) == 2
    shelf = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert {name.split("-")[0] for name in shelf} == {"base", "cold"}
    again = run(chosen, chosen.variants["b"], 1, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == shelf
    assert again.start == made.start
