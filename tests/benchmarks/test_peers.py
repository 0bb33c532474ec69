"""`make bench-peers`: the table is made of what was kept, and what is missing is told first."""

from __future__ import annotations

import json

import pytest

from benchmarks import multihop, peers
from benchmarks.peers import FAMILIES, SYSTEMS, main, report


def test_without_data_it_says_what_to_set(monkeypatch, capsys):
    monkeypatch.delenv("KBQA_DATA", raising=False)
    assert main() == 2
    error = capsys.readouterr().err
    assert "KBQA_DATA" in error
    assert len(error.splitlines()) == 1


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Results of all systems but one, whose questions cost the reader 20 ms and the others 5 ms each."""
    asked = []

    def refuse(*arguments, home):
        asked.append(arguments)
        if arguments[0] != "kg":
            raise AssertionError(arguments)

    monkeypatch.setattr(multihop, "kbqa", refuse)
    monkeypatch.setattr(peers, "kbqa", refuse)
    tests = [test for tests in FAMILIES.values() for test in tests]
    graphs = [graph.name for graph in peers.NATURAL.iterdir()]
    for name in SYSTEMS:
        hits = (1, 1, 1, 0) if name == "trained" else (1, 0, 1, 0)
        records = [
            {"group": f"{place // 2}", "measures": {"hits@1": hit, "f1": hit / 2}}
            for place, hit in enumerate(hits)
        ]
        price = 0.08 if name == "reader" else 0.02
        result = json.dumps({"questions": 4, "records": records, "processor_seconds": price})
        for test in (*tests, *graphs):
            (tmp_path / f"eval-{name}-{test.replace('@', '-')}.json").write_text(result)
    for family in FAMILIES:
        run = tmp_path / "runs" / family.replace("@", "-")
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
        (run / "summary.json").write_text("{}")
        (run / "progress.json").write_text(json.dumps({"results": {"versions": {"rl": "v2"}}}))
        records = [{"kind": "step", "seconds": 3.0}, {"kind": "evaluation", "seconds": 4.0}]
        (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path, asked


def test_a_table_is_made_of_what_was_kept(kept):
    home, asked = kept
    lines = list(report(home))
    assert "| metaqa-3hop (4) | trained | answers | 0.750 [0.500, 1.000] | 0.375 | 5 | 0.25 |" in lines
    assert "| metaqa-3hop (4) | reader | zero-shot | 0.500 [0.500, 0.500] | 0.250 | 20 | 1.00 |" in lines
    assert len(lines) == 2 + 5 * len(SYSTEMS) + 2 + 1 + 3
    assert "Trained on metaqa@whole: 1 steps in 4 s." in lines
    assert {order[0] for order in asked} == {"kg"}


def test_graphs_without_training_questions_are_asked_of_zero_shot_systems(kept):
    home, _ = kept
    natural = [line.split(" | ")[1:3] for line in report(home) if line.startswith("| natural")]
    assert natural == [["ranking", "zero-shot"], ["reader", "zero-shot"]]
    assert "| natural (20) | reader | zero-shot | 0.500 [0.500, 0.500] | 0.250 | 20 | 1.00 |" in report(home)
