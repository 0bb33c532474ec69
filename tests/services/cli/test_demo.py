"""The demo, whole, as README says it: what it learns, and that README's own question is answered rightly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbqa.answers import em_set
from kbqa.datasets import load_dataset
from kbqa.datasets.examples import read_examples

ROOT = Path(__file__).parents[3]
SEED = 1  # README's


def readme_question() -> str:
    [question] = set(re.findall(r'kbqa ask "([^"]+)" --kg world', (ROOT / "README.md").read_text()))
    return question


def test_readmes_question_is_held_out():
    splits = load_dataset("world", SEED).splits
    asked = readme_question()
    assert asked in [question.text for question in splits.test]
    assert asked not in [question.text for question in (*splits.train, *splits.validation)]


@pytest.mark.integration
@pytest.mark.timeout(1500)
def test_the_demo_learns_and_answers_readmes_question(tmp_path):
    command = [sys.executable, "-m", "services.cli", "demo", "--home", str(tmp_path), "--seed", str(SEED)]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stderr
    [read] = re.findall(r"the reader, .* answers (\d+) of 10 held-out questions", played.stdout)
    assert int(read) > 0
    [summary] = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/summary.json")]
    assert set(summary["f1"]) == {"base", "rl"}
    assert summary["questions"] >= 200
    assert summary["f1"]["rl"] >= 0.9
    assert summary["f1"]["rl"] - summary["f1"]["base"] >= 0.3

    [gold] = [q.answers for q in load_dataset("world", SEED).splits.test if q.text == readme_question()]
    printed = played.stdout.partition("POST /v1/answer")[2]
    asked, answer = (line.strip() for line in printed.splitlines()[:2])
    assert asked == readme_question()
    assert em_set([answer], gold)
    examples = [question.text for question in read_examples(tmp_path, "world")]
    assert len(examples) == 3  # of one, two and three hops
