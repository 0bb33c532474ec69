"""The one table of exported metrics. Dashboards and alert rules are checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]

# Seconds. One-hop actions take microseconds, batches milliseconds, queries up to minutes.
ACTION_BUCKETS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One exported metric.

    Attributes:
        name: full name, as in PromQL; counters end in `_total`, durations in `_seconds`.
        labels: label names, in the order in which `.labels()` takes them.
        buckets: upper bounds, for histograms only.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = REQUEST_BUCKETS


METRICS: tuple[Metric, ...] = (
    # every service
    Metric(
        "kbqa_http_requests_total",
        "counter",
        "HTTP requests answered.",
        ("service", "method", "route", "status"),
    ),
    Metric("kbqa_http_request_seconds", "histogram", "Time to answer a request.", ("service", "route")),
    Metric(
        "kbqa_disk_size_bytes",
        "gauge",
        "Size of the disk that holds a directory of the service: home or policies.",
        ("service", "directory"),
    ),
    Metric("kbqa_disk_free_bytes", "gauge", "Free space on that disk.", ("service", "directory")),
    # kg_server
    Metric("kbqa_kg_actions_total", "counter", "Graph actions executed.", ("action", "outcome")),
    Metric(
        "kbqa_kg_action_seconds",
        "histogram",
        "Time per graph action, averaged over the actions of one name in a batch.",
        ("action",),
        ACTION_BUCKETS,
    ),
    Metric(
        "kbqa_kg_batch_size", "histogram", "Actions per batch.", (), (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)
    ),
    Metric("kbqa_kg_queries_total", "counter", "SPARQL queries, by outcome.", ("outcome",)),
    Metric("kbqa_kg_query_seconds", "histogram", "Time per SPARQL query in its process."),
    Metric("kbqa_kg_queries_running", "gauge", "SPARQL queries that are running now."),
    Metric("kbqa_kg_queries_waiting", "gauge", "SPARQL queries that wait for their turn."),
    Metric(
        "kbqa_kg_cache_requests_total",
        "counter",
        "Cache look-ups by tier (memory, redis), action (or sparql), and outcome (hit, miss, error, paused).",
        ("tier", "action", "outcome"),
    ),
    Metric(
        "kbqa_kg_cache_writes_total",
        "counter",
        "Answers written to Redis, by outcome (ok, error, paused).",
        ("outcome",),
    ),
    Metric(
        "kbqa_kg_refusals_total",
        "counter",
        "Requests rejected before any work: an invalid key, the rate limit, or concurrency.",
        ("reason",),
    ),
    Metric(
        "kbqa_kg_changes_total",
        "counter",
        "Triples in changes of a graph, by what became of them.",
        ("graph", "outcome"),
    ),
    Metric("kbqa_kg_change_seconds", "histogram", "Time until a batch of changes was published."),
    Metric("kbqa_kg_triples", "gauge", "Triples in a graph that this server has opened.", ("graph",)),
    # rollout_worker
    Metric(
        "kbqa_rollout_requests_total",
        "counter",
        "Rollout requests taken from the queue: answered, expired, invalid, or the reason of a failure.",
        ("purpose", "outcome"),
    ),
    Metric("kbqa_rollout_requests_running", "gauge", "Rollout requests that are worked on now."),
    Metric("kbqa_rollout_queue_seconds", "histogram", "Time from sending a request to taking it."),
    Metric("kbqa_rollout_seconds", "histogram", "Time to play and score a group.", ("purpose",)),
    Metric(
        "kbqa_rollout_policy_seconds",
        "histogram",
        "Time until the engine held a version that is new enough for a request.",
        ("purpose",),
    ),
    Metric(
        "kbqa_rollout_engine_seconds",
        "histogram",
        "Time that a request waited for completions of its engine.",
        ("purpose",),
    ),
    Metric(
        "kbqa_rollout_graph_seconds",
        "histogram",
        "Time that a request waited for the graph, including for its reward.",
        ("purpose",),
    ),
    Metric(
        "kbqa_rollout_generated_tokens_total",
        "counter",
        "Tokens written by the policy, including those of pruned branches.",
    ),
    Metric("kbqa_rollout_policy_version", "gauge", "Number of the policy version that the engine holds."),
    Metric("kbqa_rollout_policy_loads_total", "counter", "Versions loaded: swap or build.", ("kind",)),
    Metric("kbqa_rollout_unjudged_total", "counter", "Episodes left out because a judge gave no verdict."),
    Metric(
        "kbqa_rollout_capped_total", "counter", "Tree states not expanded because of a limit or deadline."
    ),
    Metric(
        "kbqa_rollout_standing_back",
        "gauge",
        "1 while the worker takes no requests, because it failed or its clock is off.",
    ),
    Metric(
        "kbqa_rollout_trees_timed_out_total", "counter", "Trees whose time was over before they were grown."
    ),
    Metric(
        "kbqa_rollout_lost_total", "counter", "Episodes left out because the engine failed to complete them."
    ),
    Metric("kbqa_rollout_undelivered_total", "counter", "Replies that the broker did not take in time."),
    # an engine in a process of its own, behind rollout_worker or gateway
    Metric("kbqa_engine_requests_running", "gauge", "Completions that the engine is computing now."),
    Metric("kbqa_engine_servers_working", "gauge", "Servers of the engine that get completions."),
    Metric(
        "kbqa_engine_failures_total",
        "counter",
        "Failed operations of the engine: generate, update (weights), transfer (of weights, which are then "
        "read from files), or unload (an adapter).",
        ("operation",),
    ),
    Metric(
        "kbqa_engine_update_seconds",
        "histogram",
        "Time to load a version and to verify it, by its kind.",
        ("kind",),
    ),
    Metric(
        "kbqa_engine_logprob_gap",
        "gauge",
        "Mean absolute difference between engine and trainer on the probe of the version loaded last.",
    ),
    # trainer
    Metric(
        "kbqa_trainer_messages_total",
        "counter",
        "Replies taken from the queue: accepted, duplicate, late, or dead_letter.",
        ("outcome",),
    ),
    Metric(
        "kbqa_queue_messages",
        "gauge",
        "Messages of a queue that are waiting, taken (and not finished), or dead letters.",
        ("queue", "state"),
    ),
    Metric(
        "kbqa_redis_memory_bytes",
        "gauge",
        "Memory of the queues' Redis: used, and its limit (NaN if it has none, or is another broker).",
        ("kind",),
    ),
    Metric("kbqa_trainer_run_active", "gauge", "1 while a run is being trained."),
    Metric("kbqa_trainer_restarts_total", "counter", "Restarts of the training process after it died."),
    Metric("kbqa_trainer_step", "gauge", "Finished steps of the latest run's phase.", ("phase",)),
    Metric("kbqa_trainer_groups", "gauge", "Groups of the latest run by outcome.", ("outcome",)),
    Metric("kbqa_trainer_f1", "gauge", "Latest mean F1 of the latest run.", ("phase", "split")),
    Metric(
        "kbqa_trainer_reward",
        "gauge",
        "Mean total reward of the latest step's episodes.",
        ("phase",),
    ),
    Metric(
        "kbqa_trainer_reward_fall",
        "gauge",
        "How far the mean reward of the latest 20 steps is below the best 20 in a row, as a share of it.",
    ),
    Metric("kbqa_trainer_turns", "gauge", "Mean turns per episode in the latest step.", ("phase",)),
    Metric("kbqa_trainer_invalid_actions", "gauge", "Share of turns without a valid action.", ("phase",)),
    Metric(
        "kbqa_trainer_curve",
        "gauge",
        "Latest value of a training curve that the papers plot; see kbqa.curves.",
        ("curve",),
    ),
    Metric(
        "kbqa_trainer_run_info",
        "gauge",
        "1: the latest run, with its recipe, data set and base model.",
        ("run", "recipe", "dataset", "base_model"),
    ),
    Metric(
        "kbqa_trainer_steps_planned", "gauge", "Steps of the latest run's reinforcement learning, at most."
    ),
    Metric("kbqa_trainer_checkpoint_step", "gauge", "Step of the latest run's newest checkpoint."),
    Metric("kbqa_trainer_stage", "gauge", "Stage of the curriculum, mean over the latest step's requests."),
    Metric("kbqa_trainer_sampled_tokens", "gauge", "Tokens that the latest run's rollouts have cost so far."),
    Metric(
        "kbqa_trainer_reward_spread",
        "gauge",
        "Spread of the latest step's total rewards: std, min, max.",
        ("statistic",),
    ),
    Metric(
        "kbqa_trainer_reward_component",
        "gauge",
        "Mean of each named part of the reward in the latest step.",
        ("component",),
    ),
    Metric("kbqa_trainer_turn_reward", "gauge", "Mean reward of a turn in the latest step.", ("turn",)),
    Metric(
        "kbqa_trainer_episode_tokens",
        "gauge",
        "Tokens written in an episode of the latest step: p95, max.",
        ("statistic",),
    ),
    Metric(
        "kbqa_trainer_truncated",
        "gauge",
        "Share of the latest step's episodes that ended at a limit of turns, tokens or time.",
    ),
    Metric(
        "kbqa_trainer_action_success",
        "gauge",
        "Share of an action's calls that returned something in the latest step.",
        ("action",),
    ),
    Metric(
        "kbqa_trainer_advantage_spread",
        "gauge",
        "Standard deviation of the mean advantage of the latest step's trajectories.",
    ),
    Metric("kbqa_trainer_learning_rate", "gauge", "Learning rate of the latest step."),
    Metric("kbqa_trainer_loss", "gauge", "Loss of the latest step."),
    Metric("kbqa_trainer_importance_ratio", "gauge", "Mean importance ratio of the latest step's tokens."),
    Metric(
        "kbqa_trainer_importance_ratio_max", "gauge", "Largest importance ratio of the latest step's tokens."
    ),
    Metric(
        "kbqa_trainer_capped_fraction",
        "gauge",
        "Share of tokens whose weight is limited by the recipe's importance cap.",
    ),
    Metric(
        "kbqa_trainer_mfu",
        "gauge",
        "Share of the GPUs' peak that the latest step used; NaN without a GPU whose peak is known.",
    ),
    Metric("kbqa_trainer_clip_low_fraction", "gauge", "Share of tokens clipped at the lower bound."),
    Metric("kbqa_trainer_clip_high_fraction", "gauge", "Share of tokens clipped at the upper bound."),
    Metric(
        "kbqa_trainer_evaluation",
        "gauge",
        "Means of the latest evaluation in reinforcement learning: em, hit, f1, turns and others.",
        ("split", "measure"),
    ),
    Metric(
        "kbqa_trainer_f1_by_hops",
        "gauge",
        "Mean F1 of the latest evaluation by the length of the gold path.",
        ("split", "hops"),
    ),
    Metric("kbqa_trainer_entropy", "gauge", "Mean entropy of the policy's tokens in the latest step, nats."),
    Metric("kbqa_trainer_no_spread", "gauge", "Share of the latest step's questions that taught nothing."),
    Metric(
        "kbqa_trainer_logprob_gap",
        "gauge",
        "Mean difference of log-probabilities between engine and trainer in the latest step, nats.",
    ),
    Metric("kbqa_trainer_kl", "gauge", "Mean divergence from the reference in the latest step, nats."),
    Metric("kbqa_trainer_clip_fraction", "gauge", "Share of the latest step's tokens that were clipped."),
    Metric("kbqa_trainer_gradient_norm", "gauge", "Norm of the latest step's gradient before clipping."),
    Metric(
        "kbqa_trainer_not_finite",
        "gauge",
        "Share of the latest step's questions skipped because the loss or gradient was not finite.",
    ),
    Metric("kbqa_trainer_policy_version", "gauge", "Number of the latest run's newest policy version."),
    Metric(
        "kbqa_trainer_staleness",
        "gauge",
        "Mean number of versions that the latest step's groups were behind.",
    ),
    Metric("kbqa_trainer_staleness_max", "gauge", "Largest number of versions that a group was behind."),
    Metric(
        "kbqa_trainer_queued_seconds", "gauge", "Mean time until a worker took a request of the latest step."
    ),
    Metric("kbqa_trainer_group_age_seconds", "gauge", "Mean time from a group's arrival to its training."),
    Metric(
        "kbqa_trainer_step_seconds",
        "gauge",
        "Time of the latest step by part: waited, trained, published; checkpointed, evaluated before it.",
        ("part",),
    ),
    Metric("kbqa_trainer_alarm", "gauge", "1 while an alarm of the latest run is active.", ("alarm",)),
    # gateway
    Metric(
        "kbqa_gateway_answers_total", "counter", "Questions answered, by the answer's status.", ("status",)
    ),
    Metric(
        "kbqa_gateway_policy_info",
        "gauge",
        "1: the policy that answers unless a graph has one of its own.",
        ("run", "version"),
    ),
    Metric("kbqa_gateway_answer_seconds", "histogram", "Time from a question to its answer."),
    Metric(
        "kbqa_gateway_answer_events",
        "histogram",
        "Events before an answer, as a stream sends them.",
        (),
        (2, 5, 10, 20, 50, 100, 200, 500, 1000),
    ),
    Metric(
        "kbqa_gateway_confidence",
        "histogram",
        "Confidence of the answers found, withheld ones included.",
        (),
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    ),
    Metric(
        "kbqa_gateway_rollbacks_total",
        "counter",
        "Promoted versions that answered too few questions and were replaced by the version before.",
    ),
    Metric("kbqa_gateway_questions_running", "gauge", "Questions that are being answered or waiting."),
    Metric(
        "kbqa_gateway_phase_seconds",
        "histogram",
        "Time of each part of a question: linking, policy and graph (each turn), evidence.",
        ("phase",),
    ),
    Metric(
        "kbqa_gateway_cache_requests_total",
        "counter",
        "Questions by use of the cache: hit, miss, or no-cache if the caller asked for a new answer.",
        ("outcome",),
    ),
    Metric("kbqa_gateway_left_total", "counter", "Questions whose client disconnected before the answer."),
    Metric(
        "kbqa_gateway_stream_errors_total",
        "counter",
        "Streams that ended in an error, by status.",
        ("status",),
    ),
    Metric(
        "kbqa_gateway_refusals_total",
        "counter",
        "Rejected requests by reason: key-required, rate-exceeded, quota-exceeded, graph-forbidden ...",
        ("reason",),
    ),
    Metric(
        "kbqa_gateway_redis_failures_total",
        "counter",
        "Failures of Redis by purpose: counts (of requests), answers (kept for later reading).",
        ("purpose",),
    ),
    Metric("kbqa_gateway_key_questions_total", "counter", "Questions answered, by the key's name.", ("key",)),
    Metric("kbqa_gateway_key_calls_total", "counter", "Calls of the policy, by the key's name.", ("key",)),
    Metric(
        "kbqa_gateway_key_tokens_total",
        "counter",
        "Tokens read (prompt) and written (generated), by the key's name.",
        ("key", "kind"),
    ),
    Metric(
        "kbqa_gateway_key_seconds_total", "counter", "Time spent on answers, by the key's name.", ("key",)
    ),
    Metric(
        "kbqa_gateway_batch_lines_total",
        "counter",
        "Lines of batches, by outcome: answered or error.",
        ("outcome",),
    ),
    Metric("kbqa_gateway_batches", "gauge", "Batches whose lines are being answered here."),
    Metric("kbqa_gateway_feedback_total", "counter", "Feedback saved, by verdict.", ("verdict",)),
    Metric(
        "kbqa_gateway_tokens_total", "counter", "Tokens read (prompt) and written (generated).", ("kind",)
    ),
)
