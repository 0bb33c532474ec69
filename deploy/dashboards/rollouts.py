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
        "rollouts", "Rollouts and engine", "Rollout workers: do they reply, with which weights, and how fast?"
    )
    row(
        board,
        "Are requests answered?",
        number(
            "Requests in progress",
            "Number of rollout requests that workers are playing now.",
            Query(f"sum({gauge('kbqa_rollout_requests_running')})", "running"),
        ),
        number(
            "Failed requests",
            "Share of the accepted requests whose reply is a failure.",
            Query(
                share("kbqa_rollout_requests_total", 'outcome!~"answered|expired"'),
                "failed",
            ),
            unit="percentunit",
            limits=(0.01, 0.1),
        ),
        number(
            "Expired requests",
            "Number of requests in the selected time range that were taken after their deadline; the "
            "trainer had already sent them again.",
            Query(f"{count('kbqa_rollout_requests_total', where=_EXPIRED)} or vector(0)", "expired"),
            limits=(1, 100),
            decimals=0,
        ),
        number(
            "Undelivered replies",
            "Number of groups in the selected time range that were lost because the broker did not accept "
            "them.",
            Query(count("kbqa_rollout_undelivered_total"), "undelivered"),
            limits=(1, 10),
            decimals=0,
        ),
        number(
            "Unjudged episodes",
            "Number of episodes in the selected time range that were left out because the judge gave no "
            "verdict.",
            Query(count("kbqa_rollout_unjudged_total"), "unjudged"),
            limits=(1, 100),
            decimals=0,
        ),
        number(
            "Unexplored states",
            "Number of tree states in the selected time range that were not expanded because of a limit or "
            "a deadline.",
            Query(count("kbqa_rollout_capped_total"), "capped"),
            decimals=0,
        ),
        chart(
            "Requests",
            "Requests taken from the queue per second, by outcome.",
            Query(rate("kbqa_rollout_requests_total", "outcome"), "{{outcome}}"),
            unit="reqps",
            stacked=True,
        ),
        chart(
            "Time of a group",
            "Seconds from the first turn to the last reward: median and 95th percentile, by purpose.",
            Query(quantile(0.5, "kbqa_rollout_seconds", "purpose"), "{{purpose}}, median"),
            Query(quantile(0.95, "kbqa_rollout_seconds", "purpose"), "{{purpose}}, 95 %"),
            unit="s",
        ),
        chart(
            "What a group waits for",
            "Mean seconds per request: until the engine holds the newest weights, in the engine, and in the "
            "graph.",
            *(Query(mean(name), part) for name, part in _PARTS.items()),
            unit="s",
            stacked=True,
        ),
    )
    row(
        board,
        "Are workers and engines at work?",
        chart(
            "Workers that stand back",
            "Number of workers that take no requests for a while, because their rollouts fail or their clock "
            "is off. A worker's `/readyz` and its log say why.",
            Query(f"sum({gauge('kbqa_rollout_standing_back')})", "stand back"),
            limits=(1, 2),
        ),
        chart(
            "Lost episodes",
            "Per second: episodes that were left out because the engine failed to complete them, and trees "
            "whose time was over before they were grown.",
            Query(rate("kbqa_rollout_lost_total"), "lost episodes"),
            Query(rate("kbqa_rollout_trees_timed_out_total"), "trees out of time"),
            unit="ops",
        ),
        chart(
            "Servers of the engine",
            "vLLM only: number of servers that get completions, by worker and gateway. One that fails again "
            "and again gets none until it works.",
            Query(gauge("kbqa_engine_servers_working"), "{{job}} {{instance}}"),
        ),
    )
    row(
        board,
        "Which weights do they play?",
        chart(
            "Versions",
            "Number of the newest version, and of the version that each worker holds.",
            Query(gauge("kbqa_trainer_policy_version"), "trainer"),
            Query(f"{gauge('kbqa_rollout_policy_version')} > 0", "worker {{instance}}"),
        ),
        chart(
            "Loads of versions",
            "Versions loaded per second: into the running engine (swap), or into a new engine.",
            Query(rate("kbqa_rollout_policy_loads_total", "kind"), "{{kind}}"),
            unit="ops",
        ),
        chart(
            "Time of a weight update",
            "vLLM only: seconds to load and verify a version, 95th percentile, by kind (full or lora).",
            Query(quantile(0.95, "kbqa_engine_update_seconds", "kind"), "{{kind}}"),
            unit="s",
        ),
        chart(
            "Failures of the engine",
            "vLLM only: failed operations per second. After a failed update, nothing is played until an "
            "update succeeds.",
            Query(rate("kbqa_engine_failures_total", "operation"), "{{operation}}"),
            unit="ops",
        ),
        chart(
            "Difference on the probe",
            "vLLM only: mean difference of log-probabilities between engine and trainer on the probe of the "
            "latest loaded version. A jump means that the engine has other weights.",
            Query(gauge("kbqa_engine_logprob_gap"), "{{instance}}"),
            unit=NATS,
        ),
        chart(
            "Written tokens",
            "Tokens per second in finished groups, by worker.",
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
        "How is vLLM?",
        chart(
            "Sequences in vLLM",
            "Number of sequences that vLLM computes, and of those that wait for space in its KV cache.",
            Query(f"sum({gauge('vllm:num_requests_running')})", "running"),
            Query(f"sum({gauge('vllm:num_requests_waiting')})", "waiting"),
        ),
        chart(
            "Tokens of vLLM",
            "Prompt tokens and generated tokens per second, of all vLLM servers together.",
            Query(rate("vllm:prompt_tokens_total"), "read"),
            Query(rate("vllm:generation_tokens_total"), "written"),
            unit=TOKENS_PER_S,
        ),
        chart(
            "KV cache",
            "Share of the KV cache in use, and share of prompt tokens found in it. If it is full and "
            "sequences are preempted, allow fewer concurrent requests or more GPU memory.",
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
            "Seconds from the request to the first token, including vLLM's queue: median and 95th "
            "percentile.",
            Query(quantile(0.5, "vllm:time_to_first_token_seconds"), "median"),
            Query(quantile(0.95, "vllm:time_to_first_token_seconds"), "95 %"),
            Query(quantile(0.95, "vllm:request_queue_time_seconds"), "queued, 95 %"),
            unit="s",
        ),
        chart(
            "Time between tokens",
            "Seconds between two tokens of a sequence: median and 95th percentile.",
            Query(quantile(0.5, "vllm:inter_token_latency_seconds"), "median"),
            Query(quantile(0.95, "vllm:inter_token_latency_seconds"), "95 %"),
            unit="s",
        ),
        chart(
            "Completions of vLLM",
            "Sequences that ended per second, by reason; and preempted sequences, which are computed again.",
            Query(rate("vllm:request_success_total", "finished_reason"), "{{finished_reason}}"),
            Query(rate("vllm:num_preemptions_total"), "preempted"),
            unit="ops",
        ),
    )
