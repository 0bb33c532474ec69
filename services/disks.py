"""Metrics of the disks to which a service writes."""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path

from kbqa.telemetry.metrics import Metrics
from services.settings import ServiceSettings


def expose_disks(metrics: Metrics, settings: ServiceSettings) -> None:
    """Export size and free space, in bytes, of the disks that hold the service's home and policies.

    The value is NaN while the directory does not exist. A policy store in a bucket has no gauges.
    """
    directories = {"home": settings.home}
    if settings.policy_store is not None and "://" not in settings.policy_store:
        directories["policies"] = Path(settings.policy_store)
    for name, path in directories.items():
        for gauge, field in (("kbqa_disk_size_bytes", "total"), ("kbqa_disk_free_bytes", "free")):
            metrics.gauge(gauge).labels(settings.service, name).set_function(partial(_usage, path, field))


def _usage(path: Path, field: str) -> float:
    try:
        return float(getattr(shutil.disk_usage(path), field))
    except OSError:
        return math.nan
