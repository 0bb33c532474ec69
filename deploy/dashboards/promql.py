"""PromQL in the few forms that dashboards need, over metrics that exist.

Every name is looked up in the table of `kbqa.telemetry`, or among those of vLLM that are listed
here, so that a metric which is renamed breaks the build and not a dashboard.
"""

from __future__ import annotations

from kbqa.telemetry.table import METRICS

# Of vLLM 0.32 (docs.vllm.ai, "Production Metrics"); the service beside it passes them on.
VLLM_METRICS: dict[str, str] = {
    "vllm:generation_tokens_total": "counter",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:num_preemptions_total": "counter",
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:prefix_cache_hits_total": "counter",
    "vllm:prefix_cache_queries_total": "counter",
    "vllm:prompt_tokens_total": "counter",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_success_total": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
}
# Of the services' processes, as prometheus_client exports them, and of NVIDIA's dcgm-exporter, where it runs.
PROCESS_METRICS: dict[str, str] = {
    "process_cpu_seconds_total": "counter",
    "process_resident_memory_bytes": "gauge",
}
# Of the kubelet (cAdvisor), in a cluster whose Prometheus asks it.
CONTAINER_METRICS: dict[str, str] = {
    "container_cpu_usage_seconds_total": "counter",
    "container_memory_working_set_bytes": "gauge",
    "container_spec_memory_limit_bytes": "gauge",
}
GPU_METRICS: dict[str, str] = {
    "DCGM_FI_DEV_FB_USED": "gauge",
    "DCGM_FI_DEV_GPU_UTIL": "gauge",
    "DCGM_FI_DEV_POWER_USAGE": "gauge",
}
KINDS: dict[str, str] = {
    **{metric.name: metric.kind for metric in METRICS},
    **VLLM_METRICS,
    **PROCESS_METRICS,
    **GPU_METRICS,
    **CONTAINER_METRICS,
}
_WINDOW = "[$__rate_interval]"


def gauge(name: str, where: str = "") -> str:
    """A gauge as it stands."""
    return _selector(name, "gauge", where)


def speed(expr: str, window: str) -> str:
    """What a gauge gains a second.

    A gauge is NaN before its first value, and one NaN in a window would make the slope NaN.
    """
    return f"deriv(({expr} >= 0)[{window}:])"


def rate(name: str, *by: str, where: str = "") -> str:
    """What a counter gains a second, summed over all but these labels."""
    return f"sum{_by(by)} (rate({_selector(name, 'counter', where)}{_WINDOW}))"


def count(name: str, *by: str, where: str = "") -> str:
    """What a counter gained in the time that the dashboard shows."""
    return f"sum{_by(by)} (increase({_selector(name, 'counter', where)}[$__range]))"


def of_services(expr: str) -> str:
    """What processes of every kind export, of kbqa's services only."""
    return f"{expr} and on (namespace, job, instance) {gauge('kbqa_disk_size_bytes')}"


def of_runs(expr: str) -> str:
    """A metric of the trainer's latest run, with the labels `run` and `recipe`, for the chosen runs."""
    info = gauge("kbqa_trainer_run_info", 'run=~"$run",recipe=~"$recipe"')
    return f"({expr}) * on (namespace, job, instance) group_left (run, recipe) {info}"


def quantile(q: float, name: str, *by: str, where: str = "") -> str:
    """A quantile of a histogram, of everything that was observed under these labels."""
    buckets = _selector(name, "histogram", where, "_bucket")
    return f"histogram_quantile({q:g}, sum{_by(('le', *by))} (rate({buckets}{_WINDOW})))"


def mean(name: str, *by: str, where: str = "") -> str:
    """The mean of what a histogram observed."""
    total, number = (_selector(name, "histogram", where, end) for end in ("_sum", "_count"))
    return f"sum{_by(by)} (rate({total}{_WINDOW})) / sum{_by(by)} (rate({number}{_WINDOW}))"


def share(name: str, part: str, *by: str, of: str = "") -> str:
    """The share of a counter's gain that `part` selects; without any gain there is none.

    Args:
        part: label matchers of the part, which lies within `of`.
    """
    whole = ",".join(filter(None, (of, part)))
    selected = f"sum{_by(by)} (rate({_selector(name, 'counter', whole)}{_WINDOW}))"
    everything = rate(name, *by, where=of)
    # A part that has not occurred yet has no time series.
    return f"({selected} or {everything} * 0) / ({everything} > 0)"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


def _selector(name: str, kind: str, where: str, suffix: str = "") -> str:
    if KINDS.get(name) != kind:
        raise KeyError(f"no {kind} named {name} in kbqa.telemetry.table or among those of others")
    server = 'job=~"$vllm"' if name in VLLM_METRICS else ""
    # dcgm-exporter has its own namespace.
    namespace = "" if name in GPU_METRICS else 'namespace=~"$namespace"'
    matchers = ",".join(filter(None, (namespace, server, where)))
    return f"{name}{suffix}{{{matchers}}}"
