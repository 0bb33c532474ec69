"""The ablations: their design, the record of runs, and what the table makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from benchmarks.learning.beginning import halving, listing_turns, merged_turns
from benchmarks.learning.design import Design, load_design
from benchmarks.learning.power import chances, spread, spreads_table
from benchmarks.learning.record import Entry, append, read
from benchmarks.learning.scene import TESTS
from benchmarks.learning.table import findings_table, variants_table
from benchmarks.learning.trial import Outcome, recipe_of, run
from benchmarks.learning.verdicts import current, effect, missing, verdict
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
    "seeds": [1, 2, 3, 4, 5, 6],
    "looks": [{"pairs": 3, "error": 0.01}, {"pairs": 6, "error": 0.04}],
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
    assert len(shipped.seeds) == shipped.looks[-1].pairs
    assert sum(look.error for look in shipped.looks) == pytest.approx(0.05)
    used = {name for finding in shipped.findings.values() for name in (finding.has, finding.lacks)}
    assert used == set(shipped.variants)
    assert len({shipped.digest(name) for name in shipped.variants}) == len(shipped.variants)
    assert all(recipe_of(shipped, variant).schedule.best_by is None for variant in shipped.variants.values())


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
    assert found.margin(0.05) == pytest.approx(4.303 * 0.02 / 3**0.5, rel=1e-3)
    assert found.margin(0.01) == pytest.approx(9.925 * 0.02 / 3**0.5, rel=1e-3)
    assert (found.pairs, found.sign) == (3, 1)


def test_the_spread_of_a_finding_is_parted_into_training_and_drawn_questions():
    def made(*f1: float) -> Outcome:
        return replace(outcome(0.0), f1=f1)

    # Differences of questions are 0 and 0.2 in one seed, 0 and 0.4 in the other: means 0.1 and 0.2.
    runs = {
        ("a", 1): made(0.5, 0.7),
        ("b", 1): made(0.5, 0.5),
        ("a", 2): made(0.2, 0.8),
        ("b", 2): made(0.2, 0.4),
    }
    found = spread(design(), design().findings["turn-rewards"], runs)
    assert found is not None
    assert found.whole == pytest.approx(0.1 / 2**0.5)
    assert found.questions == pytest.approx(((0.02 / 2 + 0.08 / 2) / 2) ** 0.5)
    assert found.training == 0.0  # less than what the questions alone would make
    assert [line.split(" |")[0] for line in spreads_table(design(), runs)][2:] == ["| `turn-rewards`"]


def test_the_looks_keep_their_promise_about_errors():
    looks = load_design().looks
    sign, equivalent = chances(looks, deviation=0.02, smallest=0.03, effect=0.0)
    assert sign < 0.05
    assert equivalent > 0.9
    sign, equivalent = chances(looks, deviation=0.02, smallest=0.03, effect=0.03)
    assert sign > 0.9
    assert equivalent < 0.05


NONE = [0.40] * 6


@pytest.mark.parametrize(
    ("a", "sign", "says"),
    [
        ([0.50, 0.52, 0.54], 1, "same sign"),
        ([0.50, 0.52, 0.54], -1, "opposite"),
        ([0.50, 0.52, 0.54], 0, "helps"),
        ([0.30, 0.28, 0.26], 0, "harms"),
        ([0.50, 0.30, 0.54], 1, "undecided"),
        ([0.50, 0.52], 1, "undecided"),
        ([0.401, 0.400, 0.399], 1, "equivalent"),
        ([0.42, 0.38, 0.41, 0.40, 0.39, 0.40], 1, "equivalent"),
        ([0.48, 0.32, 0.44, 0.36, 0.40, 0.40], 1, "undecided"),
        ([], 1, "not run yet"),
    ],
)
def test_the_verdict_waits_for_the_interval(a, sign, says):
    chosen = design(findings={"x": {**FINDING, "sign": sign}})
    assert verdict(chosen, chosen.findings["x"], finished(a=a, b=NONE)) == says


def test_what_a_look_has_decided_stands():
    differences = [0.12, 0.10, 0.14, 0.5, -0.9, 0.1]
    found = effect(
        design(), design().findings["turn-rewards"], finished(a=[0.4 + d for d in differences], b=NONE)
    )
    assert found is not None
    assert (found.pairs, found.sign) == (3, 1)


def test_between_looks_nothing_is_decided():
    made = finished(a=[0.50, 0.30, 0.54, 0.9, 0.9], b=NONE)
    found = effect(design(), design().findings["turn-rewards"], made)
    assert found is not None
    assert found.pairs == 3


@pytest.mark.parametrize("needs", [{"gain": 0.4}, {"partly": 1.1}])
def test_a_finding_that_its_runs_cannot_show_is_not_decided(needs):
    chosen = design(findings={"x": {**FINDING, "needs": needs}})
    made = finished(a=[0.50, 0.52, 0.54], b=NONE)
    assert verdict(chosen, chosen.findings["x"], made) == "cannot show"
    assert not missing(chosen, made, ["x"])


def test_partly_right_answers_of_either_variant_can_show_a_finding():
    chosen = design(findings={"x": {**FINDING, "needs": {"partly": 0.5}}})
    made = finished(a=[1.0, 1.0, 1.0], b=[0.42, 0.40, 0.38])
    assert verdict(chosen, chosen.findings["x"], made) == "same sign"


def test_runs_are_wanted_until_the_next_look_and_no_longer_than_a_finding_is_open():
    chosen = design()
    wanted = missing(chosen, finished(a=[0.5]), ["turn-rewards"])
    assert wanted == [("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3)]
    open_still = finished(a=[0.50, 0.30, 0.54], b=[0.4] * 3)
    assert {seed for _, seed in missing(chosen, open_still, ["turn-rewards"])} == {4, 5, 6}
    assert not missing(chosen, finished(a=[0.50, 0.52, 0.54], b=[0.4] * 3), ["turn-rewards"])
    assert not missing(chosen, finished(a=[0.48, 0.32, 0.44, 0.36, 0.40, 0.40], b=NONE), ["turn-rewards"])


@pytest.mark.parametrize(
    ("looks", "says"),
    [
        ([{"pairs": 6, "error": 0.04}, {"pairs": 3, "error": 0.01}], "more pairs than the one before"),
        ([{"pairs": 7, "error": 0.05}], "the last needs 7 seeds, and there are 6"),
    ],
)
def test_looks_that_cannot_be_taken_are_refused(looks, says):
    with pytest.raises(ValidationError, match=says):
        design(looks=looks)


def test_the_gain_of_reinforcement_is_measured_against_the_start():
    chosen = design(findings={"x": {**FINDING, "measure": "gain"}})
    found = effect(chosen, chosen.findings["x"], finished(a=[0.5, 0.6, 0.7], b=[0.9, 0.9, 0.9]))
    assert found is not None
    assert found.mean == pytest.approx(0.4)


def test_the_tables_show_every_finding_and_every_variant_that_ran():
    chosen, made = design(), finished(a=[0.50, 0.52, 0.54], b=[0.40, 0.40, 0.40])
    (*_, row) = findings_table(chosen, made)
    assert row == ("| Turn rewards | KG-R1: F1 10.1 | 0.520, 0.400; +0.120 ± 0.115 (3) | same sign |")
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
    assert (made.steps, len(made.f1), set(made.hops)) == (2, TESTS, {1, 2, 3})
    assert made.sampled_tokens > 0
    assert len(made.reward) == 2
    shelf = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert {name.split("-")[0] for name in shelf} == {"base", "cold"}
    again = run(chosen, chosen.variants["b"], 1, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == shelf
    assert again.start == made.start
