"""Gauges of the disks that a service writes to."""

from __future__ import annotations

import math
import shutil

import pytest
from prometheus_client import CollectorRegistry

from kbqa.telemetry.metrics import Metrics
from services.disks import expose_disks
from services.rollout_worker.settings import RolloutWorkerSettings


def sample(settings, name, directory):
    registry = CollectorRegistry()
    expose_disks(Metrics(registry), settings)
    return registry.get_sample_value(name, {"service": "rollout_worker", "directory": directory})


def test_size_and_free_space_are_those_of_the_disk(tmp_path):
    settings = RolloutWorkerSettings(home=tmp_path, policy_store=str(tmp_path))
    size = shutil.disk_usage(tmp_path).total
    for directory in ("home", "policies"):
        assert sample(settings, "kbqa_disk_size_bytes", directory) == size
        assert 0 < sample(settings, "kbqa_disk_free_bytes", directory) <= size


def test_a_home_that_is_not_there_yet_is_unknown(tmp_path):
    settings = RolloutWorkerSettings(home=tmp_path / "later")
    assert math.isnan(sample(settings, "kbqa_disk_free_bytes", "home"))


@pytest.mark.parametrize("store", [None, "s3://bucket/policies"])
def test_a_store_without_a_disk_of_its_own_has_no_gauge(tmp_path, store):
    settings = RolloutWorkerSettings(home=tmp_path, policy_store=store)
    assert sample(settings, "kbqa_disk_free_bytes", "policies") is None
