"""A report says of runs what their records say, and not more."""

from __future__ import annotations

import json

import pytest

from kbqa.errors import ConfigurationError, RunError
from kbqa.recipes import load_recipe
from kbqa.reports import build
from kbqa.reports.answers import EvaluationFile
from kbqa.runs.directory import State
from tests.services.trainer.made_runs import make_run

LESS = load_recipe("kg-r1-small", {"reward.w_retrieval": 0.0})
GOOD, BAD = {"base": 0.0, "rl": 0.9}, {"base": 0.0, "rl": 0.3}


def evaluation(run, right):
    """The file of an evaluation of the test questions of a run, of which the first ones are right."""
    asked = run.judged.read("rl").questions
    return {
        "policy": "baseline",
        "baseline": "ranking",
        "recipe": None,
        "dataset": "world",
        "split": "test",
        "seed": 1,
        "created_at": "2026-01-01T00:00:00+00:00",
        "seconds": 3.0,
        "records": [
            {
                "id": one.id,
                "question": one.question,
                "group": one.cluster,
                "gold": one.gold,
                "answers": one.gold if at < right else [],
                "status": "answered",
                "measures": {"f1": float(at < right)},
            }
            for at, one in enumerate(asked)
        ],
    }


def test_a_result_has_an_interval_over_what_its_questions_ask_for(tmp_path):
    report = build([make_run(tmp_path, skills=GOOD, name="one")])
    [run] = report.runs
    [base, rl] = run.phases
    assert (base.phase, base.score.mean, rl.phase) == ("base", 0.0, "rl")
    assert rl.score.low < rl.score.mean < rl.score.high
    assert (rl.score.questions, rl.score.clusters) == (24, 12)
    assert report.systems[0].score == rl.score
    assert run.gained.mean == pytest.approx(rl.score.mean)
    assert run.gained.won == 24 * rl.score.mean
    assert (run.seed, run.split, report.systems[0].paper) == (1, "test", "KG-R1")


def test_a_run_without_answers_on_record_has_its_mean_alone(tmp_path):
    report = build([make_run(tmp_path)])
    assert report.systems[0].score.mean == 0.7
    assert report.systems[0].score.low is None
    assert report.runs[0].gained is None


def test_seeds_of_a_recipe_are_one_system_whose_interval_is_over_seeds(tmp_path):
    report = build(
        [make_run(tmp_path, seed=seed, name=f"s{seed}", skills=GOOD | {"rl": seed / 4}) for seed in (1, 2, 3)]
    )
    [system] = report.systems
    means = [run.phases[-1].score.mean for run in report.runs]
    assert system.score.mean == pytest.approx(sum(means) / 3)
    assert system.score.low < min(means)
    assert 0 <= system.score.low < system.score.high <= 1
    assert report.scenes[0].comparisons == []


def test_runs_of_one_seed_are_no_evidence_about_seeds(tmp_path):
    report = build([make_run(tmp_path, name=name, skills=GOOD) for name in "ab"])
    assert report.systems[0].score.low is None


def test_recipes_are_compared_by_the_runs_of_a_seed_and_by_question(tmp_path):
    runs = [make_run(tmp_path, seed=seed, name=f"full-{seed}", skills=GOOD) for seed in (1, 2)]
    runs += [make_run(tmp_path, LESS, seed=seed, name=f"less-{seed}", skills=BAD) for seed in (2, 1, 3)]
    report = build(runs)
    assert [system.name for system in report.systems] == [
        "kg-r1-small · reward.w_retrieval=0.25",
        "kg-r1-small · reward.w_retrieval=0.0",
    ]
    [scene] = report.scenes
    [comparison] = scene.comparisons
    named = [(report.runs[pair.ours].name, report.runs[pair.theirs].name) for pair in comparison.pairs]
    assert named == [("less-1", "full-1"), ("less-2", "full-2")]
    first = comparison.pairs[0].difference
    assert first.ours - first.theirs == pytest.approx(first.mean)
    assert first.mean < first.high < 0
    assert (first.questions, first.clusters) == (24, 12)
    assert comparison.mean == pytest.approx(sum(pair.difference.mean for pair in comparison.pairs) / 2)
    turned = build(runs, against="less-2").scenes[0]
    assert turned.comparisons[0].mean == pytest.approx(-comparison.mean)


def test_seeds_whose_questions_merely_share_ids_are_not_compared(tmp_path):
    runs = [make_run(tmp_path, name="a", skills=GOOD), make_run(tmp_path, LESS, seed=2, name="b", skills=BAD)]
    assert build(runs).scenes[0].comparisons == []


def test_telling_questions_are_answered_exactly_by_one_of_the_two(tmp_path):
    runs = [make_run(tmp_path, name="a", skills=GOOD), make_run(tmp_path, LESS, name="b", skills=BAD)]
    pair, *gained = build(runs).scenes[0].tellings
    assert (pair.ours, pair.theirs) == ("b", "a")
    assert {(one.ours.f1, one.theirs.f1) for one in pair.questions} == {(0.0, 1.0), (1.0, 0.0)}
    assert len(pair.questions) <= min(12, pair.won + pair.lost)
    assert all(one.ours.turns and one.theirs.turns for one in pair.questions)
    lost = [one for one in pair.questions if one.theirs.f1 == 1.0]
    assert len({one.question for one in lost}) == len(lost)
    assert [(one.ours, one.theirs) for one in gained] == [("rl", "base")] * 2


def test_a_baseline_is_compared_with_the_run_on_the_same_questions(tmp_path):
    run = make_run(tmp_path, name="a", skills=GOOD)
    file = tmp_path / "ranking.json"
    file.write_text(json.dumps(evaluation(run, right=6)))
    report = build([run], [EvaluationFile.read(file)])
    assert [system.name for system in report.systems] == ["kg-r1-small", "baseline (ranking)"]
    [comparison] = report.scenes[0].comparisons
    assert comparison.pairs[0].difference.ours == 0.25
    assert report.scenes[0].tellings[0].questions[0].ours.turns is None


def test_data_sets_are_apart(tmp_path):
    runs = [
        make_run(tmp_path, name="a", skills=GOOD),
        make_run(tmp_path, LESS, name="b", dataset="metaqa-1hop", skills=BAD),
    ]
    report = build(runs)
    assert [(scene.dataset, scene.systems, scene.comparisons) for scene in report.scenes] == [
        ("world", [0], []),
        ("metaqa-1hop", [1], []),
    ]


def test_a_run_that_goes_on_has_no_result_and_shortens_no_mean(tmp_path):
    done = [make_run(tmp_path, seed=seed, name=f"s{seed}", skills=GOOD) for seed in (1, 2)]
    going = make_run(tmp_path, seed=3, name="s3", steps=10, state=State.RUNNING, skills={"base": 0.0})
    report = build([*done, going])
    run = report.runs[2]
    assert (run.name, run.state, run.step) == ("s3", "running", 10)
    assert run.notes == ["The run is not finished (running), so it has no final result."]
    [reward] = [chart for chart in report.scenes[0].charts if chart.title == "Reward"]
    [line] = reward.steps
    assert line.points[-1][0] == 30
    assert [member[-1][0] for member in line.members] == [30, 30, 10]
    assert len(line.band) == 30


def test_damaged_records_are_problems_of_their_run(tmp_path):
    run = make_run(tmp_path, name="a", skills=GOOD)
    text = run.metrics_path.read_text()
    run.metrics_path.write_text("{nonsense\n" + text)
    (run.path / "judged/rl.jsonl.gz").write_bytes(b"nonsense")
    report = build([run])
    assert report.scenes[0].charts == []
    assert [problem.split(" ")[0] for problem in report.runs[0].problems] == [
        "metrics.jsonl",
        str(run.path / "judged/rl.jsonl.gz"),
    ]
    assert report.systems[0].score.low is None
    run.progress_path.write_text("{")
    assert "progress.json cannot be read" in build([run]).runs[0].problems[0]
    (run.path / "run.json").write_text("{}")
    with pytest.raises(RunError, match="run a cannot be read"):
        build([run])


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="nothing to report"):
        build([])
    with pytest.raises(ConfigurationError, match=r"--against b: .* \(it has: a\)"):
        build([make_run(tmp_path, name="a")], against="b")


@pytest.mark.parametrize("text", ["", "[]", '{"records": []}', '{"policy": "x", "records": [{"id": 1}]}'])
def test_a_file_that_is_no_evaluation_is_named(tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="other.json was not written by kbqa eval --json"):
        EvaluationFile.read(file)
    with pytest.raises(ConfigurationError, match="none.json: No such file"):
        EvaluationFile.read(tmp_path / "none.json")
