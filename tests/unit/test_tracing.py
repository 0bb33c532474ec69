"""Spans, and what goes from service to service."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kbqa.telemetry.logs import log_context
from kbqa.tracing import outgoing_headers, span, start_tracing, traced


@pytest.fixture
def exporter():
    """What was traced in this test."""
    exporter = InMemorySpanExporter()
    stop = start_tracing("test", exporter, batched=False)
    yield exporter
    stop()


def test_nothing_is_traced_unless_it_is_wanted():
    with traced("test", None), span("a", rows=1) as current:
        assert current is None
        assert outgoing_headers() == {}


def test_a_request_id_goes_along_without_a_trace():
    with log_context(request_id="r1"):
        assert outgoing_headers() == {"X-Request-ID": "r1"}


def test_spans_lie_within_each_other(exporter):
    with span("outer", "server") as outer, span("inner", rows=3):
        assert outgoing_headers()["traceparent"].split("-")[1] == f"{outer.context.trace_id:032x}"
    inner, outer = exporter.get_finished_spans()
    assert (inner.name, dict(inner.attributes)) == ("inner", {"kbqa.rows": 3})
    assert inner.parent.span_id == outer.context.span_id
    assert outer.parent is None
    assert outer.resource.attributes["service.name"] == "kbqa.test"


def test_a_span_goes_on_with_the_trace_of_a_request(exporter):
    trace = "0af7651916cd43dd8448eb211c80319c"
    with span("a", "server", incoming={"traceparent": f"00-{trace}-b7ad6b7169203331-01"}):
        pass
    (traced_span,) = exporter.get_finished_spans()
    assert f"{traced_span.context.trace_id:032x}" == trace
    assert f"{traced_span.parent.span_id:016x}" == "b7ad6b7169203331"


def test_what_a_block_raises_is_recorded(exporter):
    with pytest.raises(ValueError, match="no"), span("a"):
        raise ValueError("no")
    (failed,) = exporter.get_finished_spans()
    assert not failed.status.is_ok
    assert failed.events[0].name == "exception"
