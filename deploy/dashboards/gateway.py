"""The gateway: requests, answers, and how well they are supported."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards.panels import Query, chart, dashboard, number, row
from deploy.dashboards.promql import gauge, mean, quantile, rate, share

_SERVER = 'service="gateway"'
_ANSWER = 'service="gateway",route="/v1/answer"'


def gateway() -> Dashboard:
    """Rate, errors and duration first; then what the answers are like."""
    board = dashboard("gateway", "Gateway", "Questions and answers: rate, errors, duration, support.")
    row(
        board,
        "Does it answer?",
        number(
            "Questions a second",
            "Requests to /v1/answer per second.",
            Query(rate("kbqa_http_requests_total", where=_ANSWER), "questions"),
            unit="reqps",
        ),
        number(
            "Failed requests",
            "Share of requests with a status of 500 or more.",
            Query(share("kbqa_http_requests_total", 'status=~"5.."', of=_SERVER), "failed"),
            unit="percentunit",
            limits=(0.01, 0.05),
        ),
        number(
            "Time to the answer, 95 %",
            "Seconds from a question to its answer, 95th percentile.",
            Query(quantile(0.95, "kbqa_gateway_answer_seconds"), "95 %"),
            unit="s",
            limits=(10, 30),
        ),
        number(
            "Questions at a time",
            "Number of questions that are being answered or wait for their turn.",
            Query(f"sum({gauge('kbqa_gateway_questions_running')})", "running"),
        ),
        number(
            "Supported answers",
            "Share of answered questions whose answer is supported by facts of the graph.",
            Query(
                share("kbqa_gateway_answers_total", 'status="answered"', of='status=~"answered|unsupported"'),
                "supported",
            ),
            unit="percentunit",
            limits=(0.8, 0.5),
            order="low is bad",
        ),
        number(
            "Rejected requests",
            "Share of requests with status 429: too many at a time, or above a limit.",
            Query(share("kbqa_http_requests_total", 'status="429"', of=_SERVER), "turned away"),
            unit="percentunit",
            limits=(0.01, 0.1),
        ),
        chart(
            "Requests",
            "Requests per second, by route and status.",
            Query(rate("kbqa_http_requests_total", "route", "status", where=_SERVER), "{{route}} {{status}}"),
            unit="reqps",
        ),
        chart(
            "Errors",
            "Requests per second with a status of 400 or more. 503: no policy or no graph; 429: too many "
            "requests.",
            Query(
                rate("kbqa_http_requests_total", "status", where=f'{_SERVER},status=~"[45].."'), "{{status}}"
            ),
            unit="reqps",
            stacked=True,
        ),
        chart(
            "Duration",
            "Seconds from a question to its answer: median, 95th and 99th percentile.",
            Query(quantile(0.5, "kbqa_gateway_answer_seconds"), "median"),
            Query(quantile(0.95, "kbqa_gateway_answer_seconds"), "95 %"),
            Query(quantile(0.99, "kbqa_gateway_answer_seconds"), "99 %"),
            unit="s",
        ),
    )
    row(
        board,
        "What are the answers like?",
        chart(
            "Answers by status",
            "Questions per second by status: answered, no_answer (or none of which the policy is sure), "
            "no_topic_entity (the question names nothing in the graph), partial (time limit reached), "
            "unsupported (no facts support the answer).",
            Query(rate("kbqa_gateway_answers_total", "status"), "{{status}}"),
            unit="ops",
            width=6,
            stacked=True,
        ),
        chart(
            "Support rate",
            "Share of the questions with an answer whose answer is supported by facts of the graph. If it "
            "falls after a promotion, the new policy is worse: promote the previous one.",
            Query(
                share("kbqa_gateway_answers_total", 'status="answered"', of='status=~"answered|unsupported"'),
                "supported",
            ),
            unit="percentunit",
            width=6,
            top=1,
        ),
        chart(
            "Confidence",
            "How sure the policy is of what it finds, withheld answers included: median and 10th percentile. "
            "If it falls, users ask what the policy has not learned, or the graph has changed.",
            Query(quantile(0.5, "kbqa_gateway_confidence"), "median"),
            Query(quantile(0.1, "kbqa_gateway_confidence"), "10 %"),
            unit="percentunit",
            width=6,
            top=1,
        ),
        chart(
            "Tokens of a question",
            "Mean number of tokens that the policy read and wrote per question.",
            Query(
                f"{rate('kbqa_gateway_tokens_total', 'kind')} / ignoring(kind) group_left() "
                f"({rate('kbqa_gateway_answers_total')} > 0)",
                "{{kind}}",
            ),
            unit="suffix: tokens",
            width=6,
        ),
    )
    row(
        board,
        "Which policy answers?",
        chart(
            "Gateways by version",
            "Number of gateways by the version that they answer with, unless a graph has a policy of its "
            "own. Some that stay behind after a promotion cannot load the new version, or went back.",
            Query(
                f"count by (run, version) ({gauge('kbqa_gateway_policy_info')})",
                "{{run}}, version {{version}}",
            ),
            width=12,
            stacked=True,
        ),
        chart(
            "Rollbacks",
            "Promoted versions per second that answered too few questions and were replaced by the version "
            "before, by gateway. Its log says why.",
            Query(rate("kbqa_gateway_rollbacks_total", "instance"), "{{instance}}"),
            unit="ops",
            width=12,
        ),
    )
    row(
        board,
        "Where does the time go?",
        chart(
            "Parts of a question",
            "Seconds of each part of a question, 95th percentile: linking, policy and graph (each turn), "
            "evidence.",
            Query(quantile(0.95, "kbqa_gateway_phase_seconds", "phase"), "{{phase}}"),
            unit="s",
            logarithmic=True,
        ),
        chart(
            "Length of a stream",
            "Number of events before an answer (thoughts, actions, observations): mean and 95th percentile.",
            Query(mean("kbqa_gateway_answer_events"), "mean"),
            Query(quantile(0.95, "kbqa_gateway_answer_events"), "95 %"),
            unit="suffix: events",
        ),
        chart(
            "Cached answers",
            "Questions per second by use of the cache: hit, miss, or no-cache if the caller asked for a new "
            "answer.",
            Query(rate("kbqa_gateway_cache_requests_total", "outcome"), "{{outcome}}"),
            unit="ops",
            stacked=True,
        ),
    )
    row(
        board,
        "Who gets no answer, and what do users say?",
        chart(
            "Keys, rates and quotas",
            "Rejected requests per second, by reason. quota-exceeded: the caller has used up the quota of "
            "its key.",
            Query(rate("kbqa_gateway_refusals_total", "reason"), "{{reason}}"),
            unit="reqps",
            stacked=True,
        ),
        chart(
            "Aborted answers",
            "Per second: streams that ended in an error, by status; clients that disconnected before the "
            "answer; and failures of Redis.",
            Query(rate("kbqa_gateway_stream_errors_total", "status"), "stream error {{status}}"),
            Query(rate("kbqa_gateway_left_total"), "client left"),
            Query(rate("kbqa_gateway_redis_failures_total", "purpose"), "Redis: {{purpose}}"),
            unit="ops",
        ),
        chart(
            "Feedback",
            "Verdicts of users per second.",
            Query(rate("kbqa_gateway_feedback_total", "verdict"), "{{verdict}}"),
            unit="ops",
            stacked=True,
        ),
    )
    row(
        board,
        "Who costs what?",
        chart(
            "Questions by key",
            "Answered questions per second, by the name of the caller's key.",
            Query(rate("kbqa_gateway_key_questions_total", "key"), "{{key}}"),
            unit="ops",
            width=6,
            stacked=True,
        ),
        chart(
            "Tokens by key",
            "Tokens per second that the policy read and wrote, by the name of the caller's key.",
            Query(rate("kbqa_gateway_key_tokens_total", "key"), "{{key}}"),
            unit="suffix: tokens/s",
            width=6,
            stacked=True,
        ),
        chart(
            "Time by key",
            "Seconds per second that answers took, by the name of the caller's key: the mean number of its "
            "questions that are being answered.",
            Query(rate("kbqa_gateway_key_seconds_total", "key"), "{{key}}"),
            unit="none",
            width=6,
            stacked=True,
        ),
        chart(
            "Lines of batches",
            "Lines per second, by outcome, and the number of batches that are being answered.",
            Query(rate("kbqa_gateway_batch_lines_total", "outcome"), "{{outcome}}"),
            Query(f"sum({gauge('kbqa_gateway_batches')})", "batches"),
            unit="none",
            width=6,
        ),
    )
    return board
