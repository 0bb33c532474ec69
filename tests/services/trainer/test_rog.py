"""RoG's released records: loaded by one command, trained on by the next, through real services."""

from __future__ import annotations

import json
import os

import pytest

from kbqa.recipes import load_recipe
from services.cli.__main__ import main
from tests.service import Service
from tests.unit.datasets import rog_records as rog
from tests.unit.encoders import save_encoder

CUT = {
    "schedule.steps": 2,
    "schedule.questions_per_step": 4,
    "schedule.max_in_flight": 4,
    "schedule.validate_every": 2,
    "rollout.n": 4,
    "optimisation.lora.rank": 8,
}


@pytest.fixture
def loaded(home, tmp_path, monkeypatch):
    """The directory of data sets, after `kbqa data load-rog` has read the released files."""
    released, data = tmp_path / "released", tmp_path / "data"
    released.mkdir()
    for part, records in (("train", rog.TRAIN), ("validation", rog.VALIDATION), ("test", rog.TEST)):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (released / f"{part}-00000-of-00001.jsonl").write_text(lines)
    for name in list(os.environ):
        if name.startswith("KBQA_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KBQA_DATA", str(data))
    assert main(["data", "load-rog", "rog-webqsp", str(released), "--home", str(home)]) == 0
    return data


def test_released_records_are_trained_on(loaded, home, start_service, client, tmp_path):
    graphs = Service("kg_server", home, {})
    try:
        reached = {"KBQA_KG_SERVER_URL": graphs.ready().url, "KBQA_DATA": str(loaded)}
        start_service("rollout_worker", **reached).ready()
        runs = client(start_service("trainer", **reached).ready())
        recipe = load_recipe("kg-r1-chooser", {**CUT, "base_model": str(save_encoder(tmp_path / "encoder"))})
        run = runs.start(recipe.model_dump(mode="json"), dataset="rog-webqsp", limits={})
        view = runs.wait(run, lambda view: view["state"] == "done")
    finally:
        graphs.kill()
    assert set(view["f1"]) == {"base", "rl"}
    lines = (home / "runs" / run / "metrics.jsonl").read_text().splitlines()
    steps = [record for record in map(json.loads, lines) if record["kind"] == "step"]
    assert [record["step"] for record in steps] == [1, 2]
    summary = json.loads((home / "runs" / run / "summary.json").read_text())
    assert (summary["split"], summary["questions"]) == ("test", len(rog.TEST))
