"""Whatever a training process dies of, the run goes on from its last checkpoint to the same numbers."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.runs.mortal import POINTS

ROOT = Path(__file__).parents[3]
STEPS, QUESTIONS = 24, 2


@pytest.fixture
def play(tmp_path, tiny_recipe):
    """Plays the lives of one run, and returns its directory and what was said of each life."""

    def play(name: str, *lives: str) -> tuple[Path, list[str]]:
        recipe = copy.deepcopy(tiny_recipe)
        recipe["deterministic"] = True
        recipe["rollout"]["n"] = 3
        recipe["advantage"] = {"kind": "group"}
        recipe["schedule"].update(
            steps=STEPS,
            questions_per_step=QUESTIONS,
            max_in_flight=QUESTIONS,
            max_staleness=0,
            checkpoint_every=2,
            validate_every=9,
            best_by={"metric": "reward"},
        )
        root = tmp_path / name
        root.mkdir()
        (root / "recipe.json").write_text(json.dumps(recipe))
        command = [sys.executable, "-m", "tests.unit.runs.mortal", str(root), "1", *lives]
        played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert played.returncode == 0, played.stderr
        (directory,) = (root / "runs").iterdir()
        return directory, played.stdout.splitlines()

    return play


def steps(directory: Path) -> list[dict]:
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == "step"]


def test_a_run_that_dies_everywhere_ends_with_the_losses_of_one_that_lives(play) -> None:
    expected, _ = play("undisturbed", "lives")
    directory, said = play("disturbed", *POINTS, "the disk is full", "lives")
    assert said[: len(POINTS)] == [f"{point}: {-signal.SIGKILL}" for point in POINTS]
    complaint, code, end = said[len(POINTS) :]
    assert complaint.startswith("RunError: a policy version of run")
    assert "free some disk space" in complaint
    assert (code, end) == ("the disk is full: 2", "lives: 0")

    alike = ("step", "loss", "gradient_norm", "entropy", "reward", "f1")
    numbers = [[record[name] for name in alike] for record in steps(directory)]
    assert [row[0] for row in numbers] == list(range(1, STEPS + 1))
    assert numbers == [[record[name] for name in alike] for record in steps(expected)]
    results = [json.loads((d / "progress.json").read_text())["results"] for d in (directory, expected)]
    assert results[0]["best"]["value"] == results[1]["best"]["value"]

    settled = json.loads((directory / "ledger.json").read_text())["settled"]
    assert settled == json.loads((expected / "ledger.json").read_text())["settled"]
    assert sorted(settled) == [f"t{number:07d}" for number in range(len(settled))]
    assert Counter(step for _, step in settled.values()) == dict.fromkeys(range(1, STEPS + 1), QUESTIONS)
    assert not [path for path in (directory / "checkpoints").iterdir() if path.name.startswith(".")]
