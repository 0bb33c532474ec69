"""The queues between trainer and rollout workers, and the disks below everything."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards.panels import Query, chart, dashboard, number, row
from deploy.dashboards.promql import gauge, quantile, rate

_WAITING, _TAKEN, _DEAD = (f'state="{state}"' for state in ("waiting", "taken", "dead"))


def _waiting(queue: str) -> str:
    return gauge("kbqa_queue_messages", f'queue="{queue}",{_WAITING}')


def queues() -> Dashboard:
    """Whether anything waits, how long, and what nobody could use."""
    board = dashboard("queues", "Queues", "Requests and replies in flight, dead letters, and disks.")
    row(
        board,
        "Is anything waiting?",
        number(
            "Waiting requests",
            "Number of messages in `rollouts` that no worker has taken. There are always some while a run "
            "trains faster than the workers play.",
            Query(f"max({_waiting('rollouts')})", "waiting"),
            limits=(200, 1000),
        ),
        number(
            "Waiting replies",
            "Number of messages in `trajectories` that the trainer has not taken. Normally it takes them at "
            "once.",
            Query(f"max({_waiting('trajectories')})", "waiting"),
            limits=(20, 100),
        ),
        number(
            "Dead letters",
            "Number of messages in both queues that could not be processed; see `kbqa queue show`. There "
            "should be none.",
            Query(f"sum(max by (queue) ({gauge('kbqa_queue_messages', _DEAD)}))", "dead"),
            limits=(1, 10),
        ),
        number(
            "Age of a request, 95 %",
            "Seconds until a worker takes a request, 95th percentile.",
            Query(quantile(0.95, "kbqa_rollout_queue_seconds"), "95 %"),
            unit="s",
            limits=(30, 60),
        ),
        number(
            "Requests taken per second",
            "Rollout requests that all workers together take from the queue per second.",
            Query(rate("kbqa_rollout_requests_total"), "taken"),
            unit="reqps",
        ),
        number(
            "Least free space",
            "Free share of the fullest disk that a service writes to.",
            Query(f"min({gauge('kbqa_disk_free_bytes')} / {gauge('kbqa_disk_size_bytes')})", "free"),
            unit="percentunit",
            limits=(0.2, 0.1),
            order="low is bad",
        ),
        chart(
            "Waiting messages",
            "Number of messages by queue. If `rollouts` stays full, no worker is running, or none can load "
            "the policy.",
            Query(gauge("kbqa_queue_messages", _WAITING), "{{queue}}"),
        ),
        chart(
            "Taken and not finished",
            "Number of messages by queue that consumers are working on. Messages of dead consumers are "
            "included until the visibility timeout.",
            Query(gauge("kbqa_queue_messages", _TAKEN), "{{queue}}"),
        ),
        chart(
            "Age of a request",
            "Seconds from sending a request until a worker takes it: median and 95th percentile.",
            Query(quantile(0.5, "kbqa_rollout_queue_seconds"), "median"),
            Query(quantile(0.95, "kbqa_rollout_queue_seconds"), "95 %"),
            unit="s",
            limits=(30, 60),
        ),
    )
    row(
        board,
        "What happens to messages?",
        chart(
            "Requests taken",
            "Requests that workers take per second, by outcome: answered, expired, invalid (a dead letter), "
            "or the reason of a failure.",
            Query(rate("kbqa_rollout_requests_total", "outcome"), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
        chart(
            "Replies taken",
            "Replies that the trainer takes per second, by outcome: accepted, duplicate (another reply was "
            "first), late, or dead_letter.",
            Query(rate("kbqa_trainer_messages_total", "outcome"), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
        chart(
            "Dead letters",
            "Number of dead letters by queue, until they are requeued or purged.",
            Query(gauge("kbqa_queue_messages", _DEAD), "{{queue}}"),
        ),
    )
    row(
        board,
        "Is there space?",
        chart(
            "Memory of Redis",
            "Memory that the queues' Redis uses, with what the gateway keeps there, and its limit "
            "(`maxmemory`). At the limit it accepts no message: find out what waits, or raise the limit.",
            *(
                Query(f"max by (kind) ({gauge('kbqa_redis_memory_bytes', which)})", "{{kind}}")
                for which in ('kind="used"', 'kind="limit"')
            ),
            unit="bytes",
            width=24,
        ),
        chart(
            "Free space",
            "Free share of the disk that holds a service's directory, by service.",
            Query(
                f"min by (service, directory) ({gauge('kbqa_disk_free_bytes')} / "
                f"{gauge('kbqa_disk_size_bytes')})",
                "{{service}}, {{directory}}",
            ),
            unit="percentunit",
            width=12,
            top=1,
            limits=(0.2, 0.1),
            order="low is bad",
        ),
        chart(
            "Free bytes",
            "Free bytes of the same disks. Versions and checkpoints take the most space; the recipe says "
            "how many are kept.",
            Query(
                f"min by (service, directory) ({gauge('kbqa_disk_free_bytes')})", "{{service}}, {{directory}}"
            ),
            unit="bytes",
            width=12,
        ),
    )
    return board
