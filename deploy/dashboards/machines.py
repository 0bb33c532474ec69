"""Processors, memory and GPUs below the services."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards.panels import Query, chart, dashboard, row
from deploy.dashboards.promql import gauge, of_services, rate

_PROCESS = "{{job}} {{instance}}"
_CONTAINER = 'container!=""'
_GPU = "{{Hostname}} GPU {{gpu}}"


def machines() -> Dashboard:
    """Whether a service is short of processor time or memory, and whether GPUs are busy."""
    board = dashboard("machines", "Machines", "Processors and memory of the services, and GPUs.")
    row(
        board,
        "Do the services have what they need?",
        chart(
            "Processor time",
            "Processors that a service keeps busy. The trainer's child and kg_server's query processes are "
            "not included; in a cluster, the processors of containers include them.",
            Query(of_services(rate("process_cpu_seconds_total", "namespace", "job", "instance")), _PROCESS),
            width=12,
        ),
        chart(
            "Memory",
            "Resident memory of a service, with the same exceptions. If it approaches the pod's limit, the "
            "kernel ends the process.",
            Query(of_services(gauge("process_resident_memory_bytes")), _PROCESS),
            unit="bytes",
            width=12,
        ),
        chart(
            "Processors of containers",
            "Processors that a container keeps busy, with all its processes. If it stays at its limit, or at "
            "all of its node, more processor time makes the service faster. The kubelet reports it; without "
            "a cluster, there is none.",
            Query(
                rate("container_cpu_usage_seconds_total", "pod", "container", where=_CONTAINER),
                "{{pod}} {{container}}",
            ),
            width=12,
        ),
        chart(
            "Memory of containers",
            "Memory of a container that the kernel cannot take back, with all its processes, as a share of "
            "its limit. At 1, the kernel ends the process that uses most. The kubelet reports it; without a "
            "cluster, there is none.",
            Query(
                f"max by (pod, container) ({gauge('container_memory_working_set_bytes', _CONTAINER)}) / "
                f"(max by (pod, container) ({gauge('container_spec_memory_limit_bytes', _CONTAINER)}) > 0)",
                "{{pod}} {{container}}",
            ),
            unit="percentunit",
            width=12,
            top=1,
            limits=(0.8, 0.95),
        ),
    )
    row(
        board,
        "Are the GPUs busy?",
        chart(
            "Utilisation of GPUs",
            "Share of the time in which a GPU computes, of all GPUs that NVIDIA's dcgm-exporter reports. A "
            "GPU of the trainer that is idle waits for rollouts.",
            Query(gauge("DCGM_FI_DEV_GPU_UTIL"), _GPU),
            unit="percent",
            top=100,
        ),
        chart(
            "Memory of GPUs",
            "Used memory of a GPU. vLLM always takes its share; the trainer's grows with "
            "`optimisation.token_budget`.",
            Query(f"{gauge('DCGM_FI_DEV_FB_USED')} * 1048576", _GPU),
            unit="bytes",
        ),
        chart(
            "Power of GPUs",
            "Power that a GPU draws. A GPU far below its usual power while it is busy waits for memory or "
            "for other GPUs.",
            Query(gauge("DCGM_FI_DEV_POWER_USAGE"), _GPU),
            unit="watt",
        ),
    )
    return board
