"""Logs and the registry of metrics."""

from __future__ import annotations

import json
import logging

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kbqa.telemetry.logs import StructuredFormatter, log_context
from kbqa.telemetry.metrics import Metrics
from kbqa.telemetry.table import METRICS


def record(message, **extra):
    return logging.makeLogRecord(
        {"name": "kbqa.x", "levelname": "INFO", "msg": message, "created": 0.0, **extra}
    )


def test_json_records_carry_fields_and_context():
    formatter = StructuredFormatter("kg_server", "json")
    with log_context(run="r1"):
        line = json.loads(formatter.format(record("graph\nloaded", graph="films", level="not mine")))
    assert line == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "INFO",
        "service": "kg_server",
        "logger": "kbqa.x",
        "message": "graph\nloaded",
        "run": "r1",
        "graph": "films",
    }
    assert "run" not in json.loads(formatter.format(record("later")))


def test_text_records_are_one_line_of_pairs():
    line = StructuredFormatter("kg_server", "text").format(record("loaded", graph="a b", empty="", n=3))
    assert line == '1970-01-01T00:00:00.000+00:00 INFO    kg_server loaded graph="a b" empty="" n=3'


def test_every_metric_of_the_table_can_be_made_and_is_exported_under_its_name():
    metrics = Metrics(CollectorRegistry())
    for metric in METRICS:
        made = getattr(metrics, metric.kind)(metric.name)
        assert made is getattr(metrics, metric.kind)(metric.name)
        child = made.labels(*metric.labels) if metric.labels else made
        child.observe(1) if metric.kind == "histogram" else child.inc()
    text = generate_latest(metrics.registry).decode()
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind}" in text


def test_names_follow_prometheus():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("kbqa_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_a_metric_that_is_not_in_the_table_is_refused():
    with pytest.raises(KeyError, match="add it to METRICS"):
        Metrics(CollectorRegistry()).gauge("kbqa_http_requests_total")


def test_a_gauge_that_is_observed_shows_the_series_of_the_moment():
    now = {("f1",): 0.5}
    metrics = Metrics(CollectorRegistry())
    metrics.observed("kbqa_trainer_reward_component", lambda: now)

    def value(component):
        return metrics.registry.get_sample_value("kbqa_trainer_reward_component", {"component": component})

    assert (value("f1"), value("em")) == (0.5, None)
    now = {("em",): 0.25}
    assert (value("f1"), value("em")) == (None, 0.25)
    with pytest.raises(KeyError, match="no gauge named kbqa_of_nobody"):
        metrics.observed("kbqa_of_nobody", dict)
