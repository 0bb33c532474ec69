"""The knowledge graph's server: actions, SPARQL, cache."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards.panels import Query, chart, dashboard, number, row
from deploy.dashboards.promql import gauge, mean, quantile, rate, share

_SERVER = 'service="kg_server"'
_KILLED = 'outcome=~"QueryTimeout|QueryMemory|QueryLost"'


def graph() -> Dashboard:
    """Whether kg_server answers, which actions are slow, and what the cache saves."""
    board = dashboard("graph", "Knowledge graph", "kg_server: actions, SPARQL queries, and what is cached.")
    row(
        board,
        "Does it answer?",
        number(
            "Triples",
            "Number of triples in all graphs that a server has opened.",
            Query(f"sum(max by (graph) ({gauge('kbqa_kg_triples')}))", "triples"),
        ),
        number(
            "Failed requests",
            "Share of requests with a status of 500 or more.",
            Query(share("kbqa_http_requests_total", 'status=~"5.."', of=_SERVER), "failed"),
            unit="percentunit",
            limits=(0.001, 0.05),
        ),
        number(
            "Failed actions",
            "Share of actions that end in an error, such as an unknown entity. Agents in training make many "
            "errors; a served policy makes few.",
            Query(share("kbqa_kg_actions_total", 'outcome!="ok"'), "errors"),
            unit="percentunit",
        ),
        number(
            "Killed queries",
            "Share of SPARQL queries that were killed at their deadline, at their memory limit, or by "
            "something else.",
            Query(share("kbqa_kg_queries_total", _KILLED), "killed"),
            unit="percentunit",
            limits=(0.01, 0.1),
        ),
        number(
            "Answered from memory",
            "Share of look-ups that were answered from the server's own memory.",
            Query(share("kbqa_kg_cache_requests_total", 'outcome="hit"', of='tier="memory"'), "hits"),
            unit="percentunit",
        ),
        number(
            "Failures of Redis",
            "Share of look-ups in Redis that failed, or were skipped after a failure.",
            Query(
                share("kbqa_kg_cache_requests_total", 'outcome=~"error|paused"', of='tier="redis"'), "fails"
            ),
            unit="percentunit",
            limits=(0.01, 0.05),
        ),
        chart(
            "Requests",
            "HTTP requests per second, by route and status.",
            Query(rate("kbqa_http_requests_total", "route", "status", where=_SERVER), "{{route}} {{status}}"),
            unit="reqps",
            width=12,
        ),
        chart(
            "Time of a request",
            "Seconds, 95th percentile, by route. A request of actions is a whole batch.",
            Query(quantile(0.95, "kbqa_http_request_seconds", "route", where=_SERVER), "{{route}}"),
            unit="s",
            width=12,
        ),
    )
    row(
        board,
        "Which actions are slow, which fail?",
        chart(
            "Actions",
            "Actions executed per second, by name.",
            Query(rate("kbqa_kg_actions_total", "action"), "{{action}}"),
            unit="ops",
        ),
        chart(
            "Time of an action, median",
            "Seconds, averaged over the actions of one name in a batch; on a logarithmic axis.",
            Query(quantile(0.5, "kbqa_kg_action_seconds", "action"), "{{action}}"),
            unit="s",
            logarithmic=True,
        ),
        chart(
            "Time of an action, 95 %",
            "The same, 95th percentile.",
            Query(quantile(0.95, "kbqa_kg_action_seconds", "action"), "{{action}}"),
            unit="s",
            logarithmic=True,
        ),
        chart(
            "Errors by code",
            "Failed actions per second, by error code.",
            Query(rate("kbqa_kg_actions_total", "outcome", where='outcome!="ok"'), "{{outcome}}"),
            unit="ops",
        ),
        chart(
            "Actions of a batch",
            "Number of actions per batch: mean and 95th percentile. Larger batches cost less per action.",
            Query(mean("kbqa_kg_batch_size"), "mean"),
            Query(quantile(0.95, "kbqa_kg_batch_size"), "95 %"),
        ),
        chart(
            "Rejected requests",
            "Requests per second that were rejected: no valid key, above the rate limit, or too many at a "
            "time.",
            Query(rate("kbqa_kg_refusals_total", "reason"), "{{reason}}"),
            unit="reqps",
        ),
    )
    row(
        board,
        "What does SPARQL cost?",
        chart(
            "Queries",
            "SPARQL queries executed per second, by outcome; without cached ones.",
            Query(rate("kbqa_kg_queries_total", "outcome"), "{{outcome}}"),
            unit="ops",
        ),
        chart(
            "Time of a query",
            "Seconds in the query process: median, 95th and 99th percentile.",
            Query(quantile(0.5, "kbqa_kg_query_seconds"), "median"),
            Query(quantile(0.95, "kbqa_kg_query_seconds"), "95 %"),
            Query(quantile(0.99, "kbqa_kg_query_seconds"), "99 %"),
            unit="s",
            logarithmic=True,
        ),
        chart(
            "Queries at a time",
            "Number of SPARQL queries that run now, and that wait for their turn, by server. Queries wait "
            "when as many run as there are query processes.",
            Query(gauge("kbqa_kg_queries_running"), "{{instance}}, running"),
            Query(gauge("kbqa_kg_queries_waiting"), "{{instance}}, waiting"),
        ),
    )
    row(
        board,
        "What does the cache save?",
        chart(
            "Hit rate by tier",
            "Share of look-ups that found an answer. Redis is asked only if the answer is not in memory.",
            Query(share("kbqa_kg_cache_requests_total", 'outcome="hit"', "tier"), "{{tier}}"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Look-ups in Redis",
            "Look-ups per second, by outcome: hit, miss, error, or paused for a few seconds after an error.",
            Query(rate("kbqa_kg_cache_requests_total", "outcome", where='tier="redis"'), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
        chart(
            "Writes to Redis",
            "Writes per second, by outcome. If writes fail and look-ups work, Redis is full.",
            Query(rate("kbqa_kg_cache_writes_total", "outcome"), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
    )
    row(
        board,
        "Does the graph change?",
        chart(
            "Changed triples",
            "Triples per second in batches of changes, by graph and by what became of them: inserted, "
            "deleted, or ignored because nothing had to be done.",
            Query(rate("kbqa_kg_changes_total", "graph", "outcome"), "{{graph}}, {{outcome}}"),
            unit="suffix: triples/s",
            width=12,
            stacked=True,
        ),
        chart(
            "Time of a change",
            "Seconds until a batch of changes was published: mean and 95th percentile. Larger batches cost "
            "less per triple.",
            Query(mean("kbqa_kg_change_seconds"), "mean"),
            Query(quantile(0.95, "kbqa_kg_change_seconds"), "95 %"),
            unit="s",
            width=12,
        ),
    )
    return board
