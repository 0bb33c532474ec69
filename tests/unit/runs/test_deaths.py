"""Whatever a training process dies of, the run goes on from its last checkpoint to the same numbers."""

from __future__ import annotations

import copy
import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.children import Child, play
from tests.ledgers import read_ledger
from tests.unit.runs.mortal import POINTS, play_lives

STEPS, QUESTIONS = 24, 2


@pytest.fixture
def play_run(tmp_path, tiny_recipe):
    """Plays the lives of one run, and returns its directory and what was said of each life."""

    def play_run(name: str, *lives: str) -> tuple[Path, list[str]]:
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
        said = root / "said.txt"
        assert play(Child(target=play_lives, args=(root, 1, lives, said))) == [0]
        (directory,) = (root / "runs").iterdir()
        return directory, said.read_text().splitlines()

    return play_run


def steps(directory: Path) -> list[dict]:
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == "step"]


def test_a_run_that_dies_everywhere_ends_with_the_losses_of_one_that_lives(play_run) -> None:
    expected, _ = play_run("undisturbed", "lives")
    directory, said = play_run("disturbed", *POINTS, "the disk is full", "lives")
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

    settled = read_ledger(directory)["settled"]
    assert settled == read_ledger(expected)["settled"]
    assert sorted(settled) == [f"t{number:07d}" for number in range(len(settled))]
    assert Counter(step for _, step in settled.values()) == dict.fromkeys(range(1, STEPS + 1), QUESTIONS)
    assert not [path for path in (directory / "checkpoints").iterdir() if path.name.startswith(".")]
