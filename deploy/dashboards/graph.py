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
            "Of all graphs that a server has opened.",
            Query(f"sum(max by (graph) ({gauge('kbqa_kg_triples')}))", "triples"),
        ),
        number(
            "Failed requests",
            "Share of requests that were answered with a status of 500 or more.",
            Query(share("kbqa_http_requests_total", 'status=~"5.."', of=_SERVER), "failed"),
            unit="percentunit",
            limits=(0.001, 0.05),
        ),
        number(
            "Failed actions",
            "Share of actions whose outcome is an error, such as an entity that the graph lacks. Agents that "
            "learn make many; a served policy makes few.",
            Query(share("kbqa_kg_actions_total", 'outcome!="ok"'), "errors"),
            unit="percentunit",
        ),
        number(
            "Killed queries",
            "Share of SPARQL queries that were killed: at their deadline or memory limit, or from outside.",
            Query(share("kbqa_kg_queries_total", _KILLED), "killed"),
            unit="percentunit",
            limits=(0.01, 0.1),
        ),
        number(
            "Answered from memory",
            "Share of look-ups whose answer was in the server's own memory.",
            Query(share("kbqa_kg_cache_requests_total", 'outcome="hit"', of='tier="memory"'), "hits"),
            unit="percentunit",
        ),
        number(
            "Redis fails",
            "Share of look-ups in Redis that failed, or were left out after a failure.",
            Query(
                share("kbqa_kg_cache_requests_total", 'outcome=~"error|paused"', of='tier="redis"'), "fails"
            ),
            unit="percentunit",
            limits=(0.01, 0.05),
        ),
        chart(
            "Requests",
            "HTTP requests a second, by route and status.",
            Query(rate("kbqa_http_requests_total", "route", "status", where=_SERVER), "{{route}} {{status}}"),
            unit="reqps",
            width=12,
        ),
        chart(
            "Time of a request",
            "For 95 of 100 requests, by route. A request of actions is a whole batch.",
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
            "Actions executed a second, by name.",
            Query(rate("kbqa_kg_actions_total", "action"), "{{action}}"),
            unit="ops",
        ),
        chart(
            "Time of an action, median",
            "Averaged over the actions of one name in a batch; on a logarithmic axis.",
            Query(quantile(0.5, "kbqa_kg_action_seconds", "action"), "{{action}}"),
            unit="s",
            logarithmic=True,
        ),
        chart(
            "Time of an action, 95 %",
            "Likewise, for 95 of 100.",
            Query(quantile(0.95, "kbqa_kg_action_seconds", "action"), "{{action}}"),
            unit="s",
            logarithmic=True,
        ),
        chart(
            "Errors by code",
            "Actions a second whose outcome is an error of the item, by its code.",
            Query(rate("kbqa_kg_actions_total", "outcome", where='outcome!="ok"'), "{{outcome}}"),
            unit="ops",
        ),
        chart(
            "Actions of a batch",
            "Mean number, and for 95 of 100 batches. Larger ones cost less an action.",
            Query(mean("kbqa_kg_batch_size"), "mean"),
            Query(quantile(0.95, "kbqa_kg_batch_size"), "95 %"),
        ),
        chart(
            "Refused at the door",
            "Requests a second that were refused: no key, too many a second, too many at a time.",
            Query(rate("kbqa_kg_refusals_total", "reason"), "{{reason}}"),
            unit="reqps",
        ),
    )
    row(
        board,
        "What does SPARQL cost?",
        chart(
            "Queries",
            "SPARQL queries executed a second, by outcome; what is cached is not among them.",
            Query(rate("kbqa_kg_queries_total", "outcome"), "{{outcome}}"),
            unit="ops",
        ),
        chart(
            "Time of a query",
            "In its process, for 50, 95 and 99 of 100 queries.",
            Query(quantile(0.5, "kbqa_kg_query_seconds"), "median"),
            Query(quantile(0.95, "kbqa_kg_query_seconds"), "95 %"),
            Query(quantile(0.99, "kbqa_kg_query_seconds"), "99 %"),
            unit="s",
            logarithmic=True,
        ),
        chart(
            "Queries at a time",
            "SPARQL queries that run now, by server. At the number of query processes others wait.",
            Query(gauge("kbqa_kg_queries_running"), "{{instance}}"),
        ),
    )
    row(
        board,
        "What does the cache save?",
        chart(
            "Hit rate by tier",
            "Share of look-ups that found an answer. Redis is only asked for what memory lacks.",
            Query(share("kbqa_kg_cache_requests_total", 'outcome="hit"', "tier"), "{{tier}}"),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Look-ups in Redis",
            "A second, by outcome: hit, miss, error, or paused for some seconds after an error.",
            Query(rate("kbqa_kg_cache_requests_total", "outcome", where='tier="redis"'), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
        chart(
            "Writes to Redis",
            "A second, by outcome. Errors with look-ups that work are a Redis without room.",
            Query(rate("kbqa_kg_cache_writes_total", "outcome"), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
    )
    return board
