"""Gauges that show the newest run's records, and the depths of the queues."""

from __future__ import annotations

import json
import math
import os
import re
import time
from pathlib import Path

import pytest
import redis
from prometheus_client import CollectorRegistry

from kbqa.curves import curve_names
from kbqa.recipes import recipe_from
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.records import step_fields
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import ROLL_OUT_TASK, ROLLOUTS
from services.broker import create_celery, send
from services.dead_letters import DeadLetters
from services.trainer import exposition, page
from services.trainer.depths import expose_depths
from services.trainer.exposition import expose_latest_run


@pytest.fixture
def shown(tmp_path, tiny_recipe):
    """`shown(records)` makes a run with these records; the result reads a gauge."""

    def make(records):
        runs = Runs(tmp_path / "runs")
        run = runs.create(recipe_from(tiny_recipe), "world", SplitLimits(), seed=1)
        lines = [json.dumps({"seq": number, **record}) for number, record in enumerate(records, 1)]
        run.metrics_path.write_text("".join(f"{line}\n" for line in lines))
        registry = CollectorRegistry()
        expose_latest_run(Metrics(registry), runs)
        return lambda name, **labels: registry.get_sample_value(name, labels)

    return make


def step(reward, **fields):
    return {"kind": "step", "phase": "rl", "reward": reward, **fields}


def test_a_reward_that_is_half_of_its_best_has_fallen_by_half(shown):
    rewards = [0.1] * 20 + [0.8] * 20 + [0.4] * 20
    assert shown([step(r) for r in rewards])("kbqa_trainer_reward_fall") == pytest.approx(0.5)


def test_a_reward_that_rises_has_not_fallen(shown):
    assert shown([step(n / 100) for n in range(60)])("kbqa_trainer_reward_fall") == pytest.approx(0.0)


@pytest.mark.parametrize("rewards", [[], [0.5] * 19, [-0.5] * 40])
def test_too_few_steps_and_rewards_below_zero_say_nothing(shown, rewards):
    assert math.isnan(shown([step(r) for r in rewards])("kbqa_trainer_reward_fall"))


def test_the_newest_version_is_known_from_any_record(shown):
    records = [step(0.1, version="v000008-0a1b2c3d"), {"kind": "alarm", "phase": "rl"}]
    assert shown(records)("kbqa_trainer_policy_version") == 8


def test_a_scrape_reads_only_what_was_written_since_the_one_before(shown, tmp_path, monkeypatch):
    monkeypatch.setattr(exposition, "_FRESH_S", -1.0)
    gauge = shown([step(0.1)] * 1000)
    assert gauge("kbqa_trainer_reward", phase="rl") == 0.1
    (path,) = tmp_path.glob("runs/*/metrics.jsonl")
    with path.open("r+") as file:
        file.write("no record")
        file.seek(0, os.SEEK_END)
        file.write(json.dumps({"seq": 1001, **step(0.2)}) + "\n")
    assert gauge("kbqa_trainer_reward", phase="rl") == 0.2


def test_before_the_first_version_its_number_is_unknown(shown):
    assert math.isnan(shown([{"kind": "step", "phase": "warm_up"}])("kbqa_trainer_policy_version"))


def test_what_a_step_tells_is_shown(shown):
    fields = {
        "clip_fraction": 0.25,
        "gradient_norm": 3.0,
        "not_finite": 1.0,
        "mfu": 0.4,
        "capped_fraction": 0.1,
    }
    gauge = shown([step(0.1, ratio_max=7.0, **fields)])
    assert {name: gauge(f"kbqa_trainer_{name}") for name in fields} == fields
    assert gauge("kbqa_trainer_importance_ratio_max") == 7.0


def test_what_is_distributed_over_a_step_is_shown_by_name(shown):
    gauge = shown(
        [
            step(0.1, reward_components={"f1": 0.9}, of=200),
            step(0.2, reward_components={"f1": 0.5, "em": 0.25}, turn_rewards={"1": 0.75}, of=200),
            {"kind": "evaluation", "phase": "rl", "split": "validation", "em": 0.5, "f1_by_hops": {"2": 0.4}},
        ]
    )
    assert gauge("kbqa_trainer_reward_component", component="f1") == 0.5
    assert gauge("kbqa_trainer_turn_reward", turn="1") == 0.75
    assert gauge("kbqa_trainer_turn_reward", turn="2") is None
    assert gauge("kbqa_trainer_evaluation", split="validation", measure="em") == 0.5
    assert gauge("kbqa_trainer_evaluation", split="validation", measure="seq") is None
    assert gauge("kbqa_trainer_f1_by_hops", split="validation", hops="2") == 0.4
    assert gauge("kbqa_trainer_steps_planned") == 200


def test_the_latest_run_and_its_newest_checkpoint_are_named(tmp_path, tiny_recipe):
    runs, registry = Runs(tmp_path / "runs"), CollectorRegistry()
    expose_latest_run(Metrics(registry), runs)
    recipe = recipe_from(tiny_recipe)
    run = runs.create(recipe, "world", SplitLimits(), seed=1)
    labels = {"run": run.id, "recipe": recipe.name, "dataset": "world", "base_model": recipe.base_model or ""}
    assert registry.get_sample_value("kbqa_trainer_run_info", labels) == 1.0
    assert math.isnan(registry.get_sample_value("kbqa_trainer_checkpoint_step"))
    for name in ("step-000004", "step-000012", "step-000016.part"):
        (run.checkpoints_path / name).mkdir(parents=True)
    assert registry.get_sample_value("kbqa_trainer_checkpoint_step") == 12


def test_messages_are_counted_where_they_lie(broker_url):
    app = create_celery("test", broker_url, consumes=ROLLOUTS)
    letters = DeadLetters(app, ROLLOUTS)
    registry = CollectorRegistry()
    expose_depths(Metrics(registry), broker_url)

    def depth(queue, state):
        return registry.get_sample_value("kbqa_queue_messages", {"queue": queue, "state": state})

    send(app, ROLLOUTS, ROLL_OUT_TASK, "{}")
    letters.bury("?", "nobody knows what it is", ROLL_OUT_TASK, 1)
    assert depth("rollouts", "waiting") == 1
    assert depth("rollouts", "dead") == 1
    assert depth("trajectories", "dead") == 0
    letters.purge()
    with app.connection_for_write() as connection:
        connection.default_channel.queue_purge(ROLLOUTS)


def test_the_memory_of_redis_and_its_limit_are_told(broker_url):
    registry = CollectorRegistry()
    expose_depths(Metrics(registry), broker_url)

    def memory(kind):
        return registry.get_sample_value("kbqa_redis_memory_bytes", {"kind": kind})

    with redis.Redis.from_url(broker_url) as client:
        before = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", 100 * 2**20)
        try:
            assert memory("limit") == 100 * 2**20
            assert 0 < memory("used") < 100 * 2**20
        finally:
            client.config_set("maxmemory", before)


def test_a_broker_that_is_away_makes_depths_unknown_at_once():
    registry = CollectorRegistry()
    expose_depths(Metrics(registry), "redis://127.0.0.1:9/0")
    began = time.monotonic()
    depth = registry.get_sample_value("kbqa_queue_messages", {"queue": "rollouts", "state": "waiting"})
    assert math.isnan(depth)
    assert math.isnan(registry.get_sample_value("kbqa_redis_memory_bytes", {"kind": "used"}))
    assert time.monotonic() - began < 20.0


def test_every_gauge_reads_a_field_that_a_steps_record_has() -> None:
    known = {*step_fields(), *curve_names(), "step", "reward", "turns", "invalid_actions"}
    read = {*exposition.RL_GAUGES.values(), *(f"{part}_s" for part in exposition.PARTS)}
    assert read <= {*step_fields()}
    assert {*exposition.STEP_GAUGES.values()} <= known


def test_every_figure_of_the_page_shows_fields_that_a_steps_record_has() -> None:
    script = (Path(page.__file__).parent / "static" / "curves.js").read_text()
    shown = {
        name for fields in re.findall(r'line\("[^"]+", (\[[^\]]*\])', script) for name in json.loads(fields)
    }
    of_steps = {name for name in shown if "." not in name}
    rewards = {"f1", "reward", "success", "turns", "generated_tokens", "invalid_calls", "answered"}
    assert len(of_steps) > 20
    assert of_steps <= {*step_fields(), *curve_names(), *rewards}
