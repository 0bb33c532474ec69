"""What somebody has to look at; each alert has a section of its name in docs/operations.md.

Every expression keeps the label `namespace`, so that releases in one Prometheus do not add up;
without Kubernetes it is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule of Prometheus.

    Attributes:
        expr: PromQL; what it returns has to be looked at.
        summary: in a sentence; may name labels by `{{ $labels.… }}`.
        after: how long the expression has to hold.
        severity: critical is worth waking somebody.
    """

    name: str
    expr: str
    summary: str
    after: str = ""
    severity: Literal["warning", "critical"] = "warning"

    def rule(self) -> dict[str, Any]:
        """As it stands in a file of rules."""
        return {
            "alert": self.name,
            "expr": self.expr,
            **({"for": self.after} if self.after else {}),
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "runbook_url": f"docs/operations.md#{self.name.lower()}",
            },
        }


# While a run goes on; a gauge of the latest run keeps its last value after it.
_ACTIVE = "and on (namespace) max by (namespace) (kbqa_trainer_run_active) == 1"

_TRAINING = (
    Alert(
        "KbqaTrainingAlarm",
        "max by (namespace, alarm) (kbqa_trainer_alarm) > 0",
        "A bound under the recipe's guards is broken: {{ $labels.alarm }}",
        after="5m",
    ),
    Alert(
        "KbqaTrainerRestarts",
        "sum by (namespace) (increase(kbqa_trainer_restarts_total[1h])) > 2",
        "The training process dies repeatedly",
    ),
    Alert(
        "KbqaTrainingStands",
        "max by (namespace) (changes(kbqa_trainer_step[1h])) == 0 "
        "and on (namespace) max by (namespace) (min_over_time(kbqa_trainer_run_active[1h])) == 1 "
        # Without this, it would fire whenever a run begins while Prometheus knows less than an hour of it.
        "and on (namespace) max by (namespace) (kbqa_trainer_run_active offset 1h) == 1",
        "A run is active but has not finished a step for an hour",
        severity="critical",
    ),
    Alert(
        "KbqaRewardCollapsed",
        f"max by (namespace) (kbqa_trainer_reward_fall) > 0.5 {_ACTIVE}",
        "The mean reward of the latest 20 steps is less than half of the run's best",
        after="10m",
        severity="critical",
    ),
    Alert(
        "KbqaPolicyCollapsed",
        f"(max by (namespace) (kbqa_trainer_entropy) < 0.01 {_ACTIVE}) "
        f"or (max by (namespace) (avg_over_time(kbqa_trainer_no_spread[30m])) > 0.95 {_ACTIVE})",
        "The policy no longer explores, so it learns nothing",
        after="15m",
    ),
    Alert(
        "KbqaStepsNotFinite",
        "max by (namespace) (max_over_time(kbqa_trainer_not_finite[10m])) > 0",
        "Steps are skipped because the loss or gradient is not finite",
        severity="critical",
    ),
)
_WEIGHTS = (
    Alert(
        "KbqaWeightsStand",
        'max by (namespace) (changes(kbqa_trainer_step{phase="rl"}[1h])) > 5 '
        "unless on (namespace) max by (namespace) (changes(kbqa_trainer_policy_version[1h])) > 0",
        "Steps are finished, but no new version is published",
        after="5m",
        severity="critical",
    ),
    Alert(
        "KbqaEngineUpdateFails",
        'sum by (namespace, instance) (increase(kbqa_engine_failures_total{operation="update"}[15m])) > 0',
        "vLLM at {{ $labels.instance }} does not load new weights",
        after="5m",
        severity="critical",
    ),
    Alert(
        "KbqaWorkerStale",
        "max by (namespace) (kbqa_trainer_policy_version) - on (namespace) group_right () "
        f"min by (namespace, instance) (kbqa_rollout_policy_version) > 10 {_ACTIVE}",
        "Worker {{ $labels.instance }} is {{ $value }} versions behind the trainer",
        after="10m",
    ),
    Alert(
        "KbqaRolloutsFail",
        'sum by (namespace) (rate(kbqa_rollout_requests_total{outcome!~"answered|expired"}[10m])) '
        "/ sum by (namespace) (rate(kbqa_rollout_requests_total[10m])) > 0.2",
        "More than one rollout request in five fails",
        after="5m",
        severity="critical",
    ),
)
_QUEUES = (
    Alert(
        "KbqaQueueWaits",
        "histogram_quantile(0.9, sum by (namespace, le) (rate(kbqa_rollout_queue_seconds_bucket[10m]))) > 60",
        "One request in ten waits for a rollout worker for more than a minute",
        after="15m",
    ),
    Alert(
        "KbqaQueueStands",
        "(min by (namespace, queue) "
        '(min_over_time(kbqa_queue_messages{queue="rollouts",state="waiting"}[10m])) > 0 '
        "unless on (namespace) sum by (namespace) (increase(kbqa_rollout_requests_total[10m])) > 0) "
        "or (min by (namespace, queue) "
        '(min_over_time(kbqa_queue_messages{queue="trajectories",state="waiting"}[10m])) > 0 '
        "unless on (namespace) sum by (namespace) (increase(kbqa_trainer_messages_total[10m])) > 0)",
        "Messages are waiting in {{ $labels.queue }}, and none has been taken for ten minutes",
        severity="critical",
    ),
    Alert(
        "KbqaDeadLetters",
        'max by (namespace, queue) (kbqa_queue_messages{state="dead"}) > 0',
        "{{ $value }} messages of {{ $labels.queue }} could not be processed",
    ),
)
_SERVICES = (
    Alert(
        "KbqaServiceDown",
        # Whatever the scrape jobs are called: one that has told of its disks and tells nothing now.
        "up == 0 and on (namespace, job, instance) last_over_time(kbqa_disk_size_bytes[1d])",
        "{{ $labels.job }} at {{ $labels.instance }} does not answer Prometheus",
        after="5m",
        severity="critical",
    ),
    Alert(
        "KbqaCacheFails",
        '(sum by (namespace) (rate(kbqa_kg_cache_requests_total{tier="redis",outcome=~"error|paused"}[5m])) '
        '/ sum by (namespace) (rate(kbqa_kg_cache_requests_total{tier="redis"}[5m])) > 0.05) '
        'or (sum by (namespace) (rate(kbqa_kg_cache_writes_total{outcome!="ok"}[5m])) '
        "/ sum by (namespace) (rate(kbqa_kg_cache_writes_total[5m])) > 0.05)",
        "kg_server's cache in Redis fails, so its answers take longer",
        after="10m",
    ),
    Alert(
        "KbqaQueriesKilled",
        "sum by (namespace) "
        '(rate(kbqa_kg_queries_total{outcome=~"QueryTimeout|QueryMemory|QueryLost"}[10m])) '
        "/ sum by (namespace) (rate(kbqa_kg_queries_total[10m])) > 0.1",
        "More than one SPARQL query in ten is killed",
        after="15m",
    ),
    Alert(
        "KbqaGatewayErrors",
        'sum by (namespace) (rate(kbqa_http_requests_total{service="gateway",status=~"5.."}[5m])) '
        '/ sum by (namespace) (rate(kbqa_http_requests_total{service="gateway"}[5m])) > 0.05',
        "The gateway fails more than one request in twenty",
        after="5m",
        severity="critical",
    ),
    Alert(
        "KbqaGatewayWithoutRedis",
        "sum by (namespace, purpose) (rate(kbqa_gateway_redis_failures_total[5m])) > 0",
        "Redis does not work for the gateway ({{ $labels.purpose }}), so gateways do not share that data",
        after="10m",
    ),
    Alert(
        "KbqaDiskFills",
        "min by (namespace, service, directory) (kbqa_disk_free_bytes / kbqa_disk_size_bytes) < 0.1",
        "The disk of {{ $labels.service }} with {{ $labels.directory }} has only {{ $value | "
        "humanizePercentage }} left",
        after="5m",
        severity="critical",
    ),
)
ALERTS: tuple[Alert, ...] = (*_TRAINING, *_WEIGHTS, *_QUEUES, *_SERVICES)


def groups() -> dict[str, Any]:
    """A file of rules."""
    return {"groups": [{"name": "kbqa", "rules": [alert.rule() for alert in ALERTS]}]}
