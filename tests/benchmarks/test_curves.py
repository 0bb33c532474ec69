"""`make bench-curves`: the course of a training, from its validations."""

from __future__ import annotations

import json

import pytest

from benchmarks.curves import course, main, report

HITS = {"metaqa-1hop": 0.95, "metaqa-2hop": 0.99, "metaqa-3hop": 0.98}


def test_a_moment_shows_the_last_validation_before_it():
    validations = [(0.0, 0.5), (40.0, 0.7), (90.0, 0.8), (301.0, 0.9)]
    assert list(course(validations, [60, 120, 300])) == [0.5, 0.7, 0.8, 0.8]


def test_a_report_is_made_of_what_was_kept(tmp_path):
    run = tmp_path / "runs/curve-100"
    run.mkdir(parents=True)
    looks = [(20.0, "prepare", 0.5), (70.0, "rl", 0.7), (310.0, "rl", 0.9)]
    records = [{"split": "validation", "seconds": s, "phase": phase, "f1": f1} for s, phase, f1 in looks]
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (run / "progress.json").write_text(json.dumps({"results": {"versions": {"rl": "v1"}}}))
    for test, hits in HITS.items():
        (run / f"eval-rl-{test}.json").write_text(json.dumps({"metrics": {"hits@1": hits}}))
    assert list(report(["100"], tmp_path))[2] == (
        "| 100 | 0.500 | 0.700 | 0.700 | 0.700 | 0.900 | 0.950 | 0.990 | 0.980 |"
    )


@pytest.mark.parametrize(("sizes", "says"), [(["none"], "numbers of training questions"), ([], "KBQA_DATA")])
def test_what_is_missing_is_one_line(sizes, says, monkeypatch, capsys):
    monkeypatch.delenv("KBQA_DATA", raising=False)
    assert main(sizes) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1
