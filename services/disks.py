"""How full the disks are that a service writes to."""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path

from kbqa.telemetry import Metrics
from services.settings import ServiceSettings


def expose_disks(metrics: Metrics, settings: ServiceSettings) -> None:
    """Let gauges show size and free space of the disks of the service's home and policies.

    A directory that is not there yet is NaN, and so is a policy store that is no directory.
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
