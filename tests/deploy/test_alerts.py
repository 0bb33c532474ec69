"""Every alert fires when it should, says what to do, and is silent on what is well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from deploy.dashboards.alerts import ALERTS
from tests.deploy.prometheus import promtool

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "helm" / "alerts" / "kbqa.yaml"
LENGTH, LOOK = 180, 150  # minutes of data, one sample each, and when they are looked at

ENTROPY = 'kbqa_trainer_alarm{alarm="entropy"}'
STEP, WARM_UP = 'kbqa_trainer_step{phase="rl"}', 'kbqa_trainer_step{phase="warm_up"}'
VERSION, WORKER = "kbqa_trainer_policy_version", 'kbqa_rollout_policy_version{instance="w1"}'
UPDATES = 'kbqa_engine_failures_total{instance="w1",operation="update"}'
ANSWERED = 'kbqa_rollout_requests_total{instance="w1",purpose="train",outcome="answered"}'
EXPIRED = 'kbqa_rollout_requests_total{instance="w1",purpose="train",outcome="expired"}'
FAILED = 'kbqa_rollout_requests_total{instance="w1",purpose="train",outcome="policy_unavailable"}'
TAKEN_FAST = 'kbqa_rollout_queue_seconds_bucket{instance="w1",le="0.5"}'
TAKEN_LATE = 'kbqa_rollout_queue_seconds_bucket{instance="w1",le="120.0"}'
TAKEN = 'kbqa_rollout_queue_seconds_bucket{instance="w1",le="+Inf"}'
WAITING = 'kbqa_queue_messages{queue="rollouts",state="waiting"}'
REPLIES = 'kbqa_queue_messages{queue="trajectories",state="waiting"}'
DEAD = 'kbqa_queue_messages{queue="rollouts",state="dead"}'
ACCEPTED = 'kbqa_trainer_messages_total{outcome="accepted"}'
READ = 'kbqa_kg_cache_requests_total{tier="redis",action="sparql",outcome="hit"}'
UNREAD = 'kbqa_kg_cache_requests_total{tier="redis",action="sparql",outcome="error"}'
WRITTEN, UNWRITTEN = (f'kbqa_kg_cache_writes_total{{outcome="{o}"}}' for o in ("ok", "error"))
QUERIES, KILLED = (f'kbqa_kg_queries_total{{outcome="{o}"}}' for o in ("ok", "QueryTimeout"))
GOOD, BAD = (
    f'kbqa_http_requests_total{{service="gateway",method="POST",route="/v1/answer",status="{status}"}}'
    for status in (200, 503)
)
FREE, SIZE = (
    f'kbqa_disk_{what}_bytes{{job="trainer",instance="t",service="trainer",directory="home"}}'
    for what in ("free", "size")
)
UNSHARED = 'kbqa_gateway_redis_failures_total{instance="g",purpose="counts"}'
UP, SOMETHING_ELSE = 'up{job="trainer",instance="t"}', 'up{job="node",instance="n"}'


def steady(value: float) -> str:
    return f"{value}+0x{LENGTH}"


def growing(by: float) -> str:
    """A counter that gains that much a minute."""
    return f"0+{by}x{LENGTH}"


HEALTHY = {
    UP: steady(1),
    SOMETHING_ELSE: steady(0),
    "kbqa_trainer_run_active": steady(1),
    STEP: growing(1),
    WARM_UP: steady(1200),
    VERSION: growing(1),
    WORKER: growing(1),
    "kbqa_trainer_restarts_total": steady(1),
    ENTROPY: steady(0),
    "kbqa_trainer_reward_fall": steady(0.2),
    "kbqa_trainer_entropy": steady(0.3),
    "kbqa_trainer_no_spread": steady(0.6),
    "kbqa_trainer_not_finite": steady(0),
    UPDATES: steady(0),
    ANSWERED: growing(60),
    EXPIRED: growing(1),
    FAILED: growing(1),
    TAKEN_FAST: growing(59),
    TAKEN_LATE: growing(60),
    TAKEN: growing(60),
    WAITING: steady(8),
    REPLIES: steady(0),
    DEAD: steady(0),
    ACCEPTED: growing(60),
    READ: growing(100),
    UNREAD: growing(1),
    WRITTEN: growing(100),
    UNWRITTEN: growing(1),
    QUERIES: growing(100),
    KILLED: growing(1),
    GOOD: growing(100),
    BAD: growing(1),
    UNSHARED: f"0+0x100 10+10x5 60+0x{LENGTH - 106}",  # Redis was started again
    FREE: steady(5e11),
    SIZE: steady(1e12),
}
# Before the first step nothing is known of a run.
UNKNOWN = " ".join(["NaN"] * LENGTH)
_OF_A_STEP = (
    STEP,
    VERSION,
    "kbqa_trainer_reward_fall",
    "kbqa_trainer_entropy",
    "kbqa_trainer_no_spread",
    "kbqa_trainer_not_finite",
)
BEGINNING = (
    HEALTHY
    | dict.fromkeys(_OF_A_STEP, UNKNOWN)
    | {WARM_UP: growing(10), WORKER: steady(0), WAITING: steady(0)}
    | dict.fromkeys((ANSWERED, EXPIRED, FAILED), steady(0))
)
# The gauges of a run keep their last values when it has ended, whatever they are.
ENDED = HEALTHY | {
    "kbqa_trainer_run_active": steady(0),
    STEP: steady(600),
    VERSION: steady(600),
    WORKER: steady(580),
    "kbqa_trainer_reward_fall": steady(0.9),
    "kbqa_trainer_entropy": steady(0.001),
    "kbqa_trainer_no_spread": steady(1),
    WAITING: steady(0),
    ANSWERED: steady(5000),
    EXPIRED: steady(50),
    FAILED: steady(50),
}
FIRES = [
    ("KbqaTrainingAlarm", {ENTROPY: f"0+0x100 1+0x{LENGTH - 100}"}),
    ("KbqaTrainerRestarts", {"kbqa_trainer_restarts_total": f"0+0x110 5+0x{LENGTH - 110}"}),
    ("KbqaTrainingStands", {STEP: steady(7), VERSION: steady(7), WORKER: steady(7)}),
    ("KbqaRewardCollapsed", {"kbqa_trainer_reward_fall": f"0.1+0x100 0.6+0x{LENGTH - 100}"}),
    ("KbqaPolicyCollapsed", {"kbqa_trainer_entropy": steady(0.001)}),
    ("KbqaPolicyCollapsed", {"kbqa_trainer_no_spread": steady(1)}),
    ("KbqaStepsNotFinite", {"kbqa_trainer_not_finite": f"0+0x144 1 0+0x{LENGTH - 145}"}),
    ("KbqaWeightsStand", {VERSION: steady(7), WORKER: steady(7)}),
    ("KbqaEngineUpdateFails", {UPDATES: f"0+0x130 1+1x{LENGTH - 130}"}),
    ("KbqaWorkerStale", {WORKER: steady(4)}),
    ("KbqaRolloutsFail", {FAILED: growing(30)}),
    ("KbqaQueueWaits", {TAKEN_FAST: growing(10)}),
    ("KbqaQueueStands", {ANSWERED: steady(500), EXPIRED: steady(5), FAILED: steady(5)}),
    ("KbqaQueueStands", {REPLIES: steady(3), ACCEPTED: steady(500)}),
    ("KbqaDeadLetters", {DEAD: steady(1)}),
    ("KbqaServiceDown", {UP: f"1+0x140 0+0x{LENGTH - 140}", SIZE: "1e12+0x140"}),
    ("KbqaCacheFails", {UNREAD: growing(50)}),
    ("KbqaCacheFails", {UNWRITTEN: growing(50)}),
    ("KbqaQueriesKilled", {KILLED: growing(50)}),
    ("KbqaGatewayErrors", {BAD: growing(50)}),
    ("KbqaGatewayWithoutRedis", {UNSHARED: growing(5)}),
    ("KbqaDiskFills", {FREE: steady(5e10)}),
]


def firing(folder: Path, series: dict[str, str], expected: str | None) -> str:
    """promtool's complaint if anything fires, or, given a name, unless that alert fires."""
    name = f'alertname="{expected}",' if expected else ""
    samples = [{"labels": f'{{alertname="{expected}"}}', "value": 1}] if expected else []
    case = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": values} for s, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'max by (alertname) (ALERTS{{{name}alertstate="firing"}})',
                        "eval_time": f"{minute}m",
                        "exp_samples": samples,
                    }
                    for minute in ((LOOK,) if expected else range(1, LENGTH, 20))
                ],
            }
        ],
    }
    path = folder / "case.yaml"
    path.write_text(yaml.safe_dump(case))
    return promtool("test", "rules", path)


def test_rules_are_well_formed():
    assert promtool("check", "rules", RULES) == ""


# Prometheus sees a run from its first second; the first step takes three minutes.
JUST_SEEN = {**HEALTHY, STEP: f"0+0x3 1+1x{LENGTH - 4}"}


@pytest.mark.parametrize(
    "series",
    [HEALTHY, BEGINNING, JUST_SEEN, ENDED, {}],
    ids=["run", "beginning", "just seen", "end", "nothing"],
)
def test_nothing_fires_while_all_is_well(tmp_path, series):
    assert firing(tmp_path, series, None) == ""


@pytest.mark.parametrize(("name", "changed"), FIRES, ids=[f"{n} {c}" for c, (n, _) in enumerate(FIRES)])
def test_an_alert_fires(tmp_path, name, changed):
    assert changed.keys() <= HEALTHY.keys()
    assert firing(tmp_path, HEALTHY | changed, name) == ""


def test_the_firing_of_every_alert_is_tried():
    assert {name for name, _ in FIRES} == {alert.name for alert in ALERTS}


def test_a_release_in_another_namespace_is_not_counted_in(tmp_path):
    other = {
        series.replace("{", '{namespace="other",')
        if "{" in series
        else f'{series}{{namespace="other"}}': values
        for series, values in HEALTHY.items()
    }
    assert firing(tmp_path, other | HEALTHY | {BAD: growing(9)}, "KbqaGatewayErrors") == ""


def test_every_alert_has_its_section_in_the_runbook_and_links_to_it():
    runbook = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (Kbqa\w+)$", runbook, re.M) == [alert.name for alert in ALERTS]
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert len(rules) == len(ALERTS)
    for rule in rules:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        # As GitHub and most renderers make the anchor of a heading.
        anchors = {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.M)
        }
        assert anchor in anchors, rule["alert"]
