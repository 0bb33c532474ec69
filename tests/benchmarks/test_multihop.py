"""`make bench-metaqa`: what is wrong is told before anything is trained; reports come from what was kept."""

from __future__ import annotations

import json

import pytest

from benchmarks import multihop
from benchmarks.multihop import TASKS, main, report


@pytest.mark.parametrize(
    ("names", "says"), [([], "name what to train: metaqa"), (["moon"], "metaqa"), (["metaqa"], "KBQA_DATA")]
)
def test_what_is_missing_is_one_line(names, says, monkeypatch, capsys):
    monkeypatch.delenv("KBQA_DATA", raising=False)
    assert main(names) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_a_run_sees_no_test_question_and_each_seed_has_a_split_of_its_own():
    assert all("test=0" in task.limits for task in TASKS.values())
    assert TASKS["pathquestion-2h"].at("pathquestion-2h@whole", 3) == "pathquestion-2h@whole-3"
    assert TASKS["metaqa"].at("metaqa@whole", 3) == "metaqa@whole"  # whose publishers made the split


def test_a_report_is_made_of_what_was_kept(tmp_path, monkeypatch):
    def keep(run, what, dataset, hits):
        records = [
            {"group": f"group {place // 2}", "measures": {"hits@1": hit, "f1": hit}}
            for place, hit in enumerate(hits)
        ]
        metrics = {"hits@1": sum(hits) / len(hits)}
        found = {"questions": len(hits), "metrics": metrics, "records": records}
        (run / f"eval-{what}-{dataset}.json").write_text(json.dumps(found))

    def refuse(*arguments, home):
        raise AssertionError(arguments)

    monkeypatch.setattr(multihop, "kbqa", refuse)
    for seed in (1, 2, 3):
        run = tmp_path / "runs" / f"pathquestion-2h-{seed}"
        run.mkdir(parents=True)
        versions = {"versions": {"base": "v1", "rl": "v2"}}
        (run / "progress.json").write_text(json.dumps({"results": versions}))
        recipe = {"schedule": {"questions_per_step": 32}, "rollout": {"n": 8}}
        (run / "run.json").write_text(json.dumps({"recipe": recipe}))
        look = {
            "kind": "evaluation",
            "split": "validation",
            "phase": "rl",
            "step": 1,
            "f1": 0.5,
            "seconds": 90,
        }
        step = {"kind": "step", "seconds": 60.0}
        at = {"phase": "rl", "step": 1}
        (run / "metrics.jsonl").write_text(json.dumps(at | step) + "\n" + json.dumps(at | look) + "\n")
        keep(run, "rl", f"pathquestion-2h-whole-{seed}", [1.0, 1.0, 1.0, float(seed > 1)])
        for other in ("metaqa-1hop", "metaqa-2hop", "metaqa-3hop", "world"):
            keep(run, "rl", other, [0.0, 1.0])
            if seed == 1:
                keep(run, "base", other, [0.0, 0.0])
                keep(run, "ranking", other, [1.0, 0.0])
    first = tmp_path / "runs" / "pathquestion-2h-1"
    keep(first, "base", "pathquestion-2h-whole-1", [0.0, 0.0])
    keep(first, "ranking", "pathquestion-2h-whole-1", [1.0, 1.0])
    lines = list(report("pathquestion-2h", TASKS["pathquestion-2h"], tmp_path))
    assert "| pathquestion-2h@whole | 4 | 1.000 | 0.000 | 0.750, 1.000, 1.000 | 0.9167 [" in lines[4]
    assert lines[5].startswith(
        "| metaqa-1hop, zero-shot | 2 | 0.500 | 0.000 | 0.500, 0.500, 0.500 | 0.5000 ["
    )
    assert "1.5 minutes of training" in lines[-1]
    assert "1 steps of GRPO, 256 episodes; validation F1 0.500 (1)." in lines[-1]
