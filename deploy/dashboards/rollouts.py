"""Rollouts and the engines that compute them."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards.panels import NATS, TOKENS_PER_S, Query, chart, choice, dashboard, number, row
from deploy.dashboards.promql import count, gauge, mean, quantile, rate, share

_PARTS = {
    "kbqa_rollout_policy_seconds": "newest weights",
    "kbqa_rollout_engine_seconds": "engine",
    "kbqa_rollout_graph_seconds": "graph",
}
_EXPIRED = 'outcome="expired"'


def rollouts() -> Dashboard:
    """Workers, their weights, and what vLLM says of itself."""
    board = dashboard(
        "rollouts", "Rollouts and engine", "Rollout workers: do they answer, with which weights, how fast?"
    )
    row(
        board,
        "Are requests answered?",
        number(
            "Requests under way",
            "Rollout requests that workers play now.",
            Query(f"sum({gauge('kbqa_rollout_requests_running')})", "running"),
        ),
        number(
            "Failed requests",
            "Share of the requests taken that were answered with a failure.",
            Query(
                share("kbqa_rollout_requests_total", 'outcome!~"answered|expired"'),
                "failed",
            ),
            unit="percentunit",
            limits=(0.01, 0.1),
        ),
        number(
            "Expired requests",
            "Requests in the time shown that were taken after their deadline; the trainer had sent others.",
            Query(f"{count('kbqa_rollout_requests_total', where=_EXPIRED)} or vector(0)", "expired"),
            limits=(1, 100),
            decimals=0,
        ),
        number(
            "Undelivered replies",
            "Groups in the time shown that were played in vain, since the broker did not take them.",
            Query(count("kbqa_rollout_undelivered_total"), "undelivered"),
            limits=(1, 10),
            decimals=0,
        ),
        number(
            "Unjudged episodes",
            "Episodes in the time shown that were left out, since the judge gave no verdict.",
            Query(count("kbqa_rollout_unjudged_total"), "unjudged"),
            limits=(1, 100),
            decimals=0,
        ),
        number(
            "Unexplored states",
            "States of trees in the time shown that were cut off at a cap or a deadline.",
            Query(count("kbqa_rollout_capped_total"), "capped"),
            decimals=0,
        ),
        chart(
            "Requests",
            "Requests taken from the queue a second, by what became of them.",
            Query(rate("kbqa_rollout_requests_total", "outcome"), "{{outcome}}"),
            unit="reqps",
            stacked=True,
        ),
        chart(
            "Time of a group",
            "From the first turn to the last reward, for half and for 95 of 100 groups, by purpose.",
            Query(quantile(0.5, "kbqa_rollout_seconds", "purpose"), "{{purpose}}, median"),
            Query(quantile(0.95, "kbqa_rollout_seconds", "purpose"), "{{purpose}}, 95 %"),
            unit="s",
        ),
        chart(
            "What a group waits for",
            "Mean seconds of a request until the engine held the newest weights, then in engine and graph.",
            *(Query(mean(name), part) for name, part in _PARTS.items()),
            unit="s",
            stacked=True,
        ),
    )
    row(
        board,
        "Which weights do they play?",
        chart(
            "Versions",
            "Number of the newest version, and of the one that each worker holds.",
            Query(gauge("kbqa_trainer_policy_version"), "trainer"),
            Query(f"{gauge('kbqa_rollout_policy_version')} > 0", "worker {{instance}}"),
        ),
        chart(
            "Loads of versions",
            "Versions loaded a second: swapped into the engine that runs, or into one that is built anew.",
            Query(rate("kbqa_rollout_policy_loads_total", "kind"), "{{kind}}"),
            unit="ops",
        ),
        chart(
            "Time of a weight update",
            "vLLM only: seconds to load a version and to verify it, for 95 of 100, by kind (full or lora).",
            Query(quantile(0.95, "kbqa_engine_update_seconds", "kind"), "{{kind}}"),
            unit="s",
        ),
        chart(
            "Failures of the engine",
            "vLLM only: what it did not do, a second. Any update that fails stops play until one succeeds.",
            Query(rate("kbqa_engine_failures_total", "operation"), "{{operation}}"),
            unit="ops",
        ),
        chart(
            "Difference on the probe",
            "vLLM only: mean difference of log-probabilities between engine and trainer on the probe of the "
            "version that was loaded last. A jump is an engine with other weights.",
            Query(gauge("kbqa_engine_logprob_gap"), "{{instance}}"),
            unit=NATS,
        ),
        chart(
            "Written tokens",
            "Tokens that each worker's policy writes a second, of finished groups.",
            Query(rate("kbqa_rollout_generated_tokens_total", "instance"), "{{instance}}"),
            unit=TOKENS_PER_S,
        ),
    )
    _vllm(board)
    return board


def _vllm(board: Dashboard) -> None:
    # A gateway passes on its vLLM's metrics, too: its servers are told apart by who asks for them.
    engines = 'label_values(vllm:num_requests_running{namespace=~"$namespace"}, job)'
    board.with_variable(choice("vllm", "vLLM of", engines))
    row(
        board,
        "What does vLLM say?",
        chart(
            "Sequences in vLLM",
            "Sequences that it computes, and that wait for room in its cache of keys and values.",
            Query(f"sum({gauge('vllm:num_requests_running')})", "running"),
            Query(f"sum({gauge('vllm:num_requests_waiting')})", "waiting"),
        ),
        chart(
            "Tokens of vLLM",
            "Prompt tokens read and tokens written a second, by all of its servers.",
            Query(rate("vllm:prompt_tokens_total"), "read"),
            Query(rate("vllm:generation_tokens_total"), "written"),
            unit=TOKENS_PER_S,
        ),
        chart(
            "Cache of keys and values",
            "How full it is, and the share of prompt tokens that it had already. Full and preempting: fewer "
            "requests at a time, or more GPU memory.",
            Query(gauge("vllm:kv_cache_usage_perc"), "full, {{instance}}"),
            Query(
                f"{rate('vllm:prefix_cache_hits_total')} / ({rate('vllm:prefix_cache_queries_total')} > 0)",
                "prefix found",
            ),
            unit="percentunit",
            top=1,
        ),
        chart(
            "Time to the first token",
            "From the request to vLLM, its queue included, for half and for 95 of 100 requests.",
            Query(quantile(0.5, "vllm:time_to_first_token_seconds"), "median"),
            Query(quantile(0.95, "vllm:time_to_first_token_seconds"), "95 %"),
            Query(quantile(0.95, "vllm:request_queue_time_seconds"), "queued, 95 %"),
            unit="s",
        ),
        chart(
            "Time between tokens",
            "Of one sequence, for half and for 95 of 100 tokens.",
            Query(quantile(0.5, "vllm:inter_token_latency_seconds"), "median"),
            Query(quantile(0.95, "vllm:inter_token_latency_seconds"), "95 %"),
            unit="s",
        ),
        chart(
            "Completions of vLLM",
            "Sequences that ended a second, by the reason; and those that were preempted, which are computed "
            "anew.",
            Query(rate("vllm:request_success_total", "finished_reason"), "{{finished_reason}}"),
            Query(rate("vllm:num_preemptions_total"), "preempted"),
            unit="ops",
        ),
    )
