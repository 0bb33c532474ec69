"""A run goes through the stages of its curriculum: real trainer, training process, worker and Redis."""

from __future__ import annotations

import copy
import json

from tests.ledgers import read_ledger


def test_a_run_goes_from_stage_to_stage(start_service, client, tiny_recipe, home) -> None:
    recipe = copy.deepcopy(tiny_recipe)
    easy = {"name": "easy", "tiers": ["easy"], "until": {"steps": 2}}
    whole = {"name": "whole", "reward": {"w_format": 0.0, "w_query": 0.0, "w_answer": 0.0}}
    recipe["cold_start"]["paths"] = "gold"  # tiers are of gold programs
    recipe["curriculum"] = {"balance": "hops", "stages": [easy, whole]}
    recipe["schedule"].update(steps=4, max_staleness=0, max_in_flight=4, request_deadline_s=60.0)
    start_service("rollout_worker").ready()
    runs = client(start_service("trainer").ready())
    run = runs.start(recipe)
    runs.wait(run, lambda view: view["state"] == "done")

    directory = home / "runs" / run
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    [begun] = [record for record in records if record["kind"] == "stage"]
    assert (begun["step"], begun["name"], begun["reason"]) == (2, "whole", "2 steps were made")
    steps = [record for record in records if record["kind"] == "step" and record["phase"] == "rl"]
    assert [record["stage"] for record in steps] == [0, 0, 1, 1]
    results = json.loads((directory / "progress.json").read_text())["results"]
    assert results["stage"] == "whole"
    ledger = read_ledger(directory)
    assert ledger["in_flight"] == []
