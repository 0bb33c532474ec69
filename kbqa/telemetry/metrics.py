"""The metrics of a process. Names that are not in the table are refused.

metrics = Metrics(CollectorRegistry())
metrics.counter("kbqa_kg_actions_total").labels("get_tail_entities", "ok").inc()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kbqa.telemetry.table import METRICS, Metric, MetricKind


class Metrics:
    """The metrics of one process; each is created from `METRICS` at its first use.

    Args:
        registry: where metrics are registered; one per application, so that two
            applications in a process (tests) do not collide.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}

    def counter(self, name: str) -> Counter:
        if name not in self._counters:
            metric = self._metric(name, "counter")
            self._counters[name] = Counter(name, metric.help, metric.labels, registry=self.registry)
        return self._counters[name]

    def gauge(self, name: str) -> Gauge:
        if name not in self._gauges:
            metric = self._metric(name, "gauge")
            self._gauges[name] = Gauge(name, metric.help, metric.labels, registry=self.registry)
        return self._gauges[name]

    def histogram(self, name: str) -> Histogram:
        if name not in self._histograms:
            metric = self._metric(name, "histogram")
            self._histograms[name] = Histogram(
                name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
            )
        return self._histograms[name]

    def observed(self, name: str, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Export a gauge whose time series come and go: `read` is called at every scrape.

        Args:
            read: returns values by the values of the labels, in the order of the table.
        """
        self.registry.register(_Observed(self._metric(name, "gauge"), read))

    def _metric(self, name: str, kind: MetricKind) -> Metric:
        for metric in METRICS:
            if metric.name == name and metric.kind == kind:
                return metric
        raise KeyError(f"no {kind} named {name}: add it to METRICS in kbqa/telemetry/table.py")


class _Observed(Collector):
    """A gauge that is read when it is scraped."""

    def __init__(self, metric: Metric, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        self._metric, self._read = metric, read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The name alone, so that registering reads nothing."""
        return [self._family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = self._family()
        for labels, value in self._read().items():
            family.add_metric(labels, value)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._metric.name, self._metric.help, labels=self._metric.labels)
