"""OpenTelemetry spans across services; does nothing until tracing is started.

    with traced("gateway", "http://collector:4318"):
        with span("policy", episodes=8):
            ...
        httpx.post(url, headers=outgoing_headers())     # the other service continues this trace

The same headers send the request id of `log_context`, which logs show, to the other service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from kbqa.errors import ConfigurationError
from kbqa.telemetry.logs import logged

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

REQUEST_ID_HEADER = "X-Request-ID"

SpanKind = Literal["internal", "client", "server"]

# One per process, like logging, so that it need not be passed to every function that makes a span.
_tracer: Tracer | None = None


@contextmanager
def traced(service: str, url: str | None) -> Iterator[None]:
    """Send the spans of the block to the collector at `url`; if it is None, there are no spans.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    if url is None:
        yield
        return
    stop = start_tracing(service, otlp_exporter(url))
    try:
        yield
    finally:
        stop()


def otlp_exporter(url: str) -> SpanExporter:
    """An exporter that sends spans to a collector by OTLP over HTTP.

    Args:
        url: of the collector, for instance http://127.0.0.1:4318.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "traces need OpenTelemetry: pip install 'kbqa[otel]', or unset KBQA_TRACES_URL"
        ) from error
    return OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces")


def start_tracing(service: str, exporter: SpanExporter, *, batched: bool = True) -> Callable[[], None]:
    """Start recording spans; returns a function that exports the remaining spans and stops.

    OpenTelemetry's OTEL_TRACES_SAMPLER sets the share of traces to record; if unset, all are recorded.

    Args:
        service: name of the service in traces.
        batched: export spans in batches from a thread; otherwise each span at its end (for tests).
    """
    global _tracer
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": f"kbqa.{service}"}))
    provider.add_span_processor((BatchSpanProcessor if batched else SimpleSpanProcessor)(exporter))
    _tracer = provider.get_tracer("kbqa")

    def stop() -> None:
        global _tracer
        _tracer = None
        provider.shutdown()

    return stop


@contextmanager
def span(
    name: str, kind: SpanKind = "internal", *, incoming: Mapping[str, str] | None = None, **attributes: Any
) -> Iterator[Span | None]:
    """A span around the block; None if tracing is off. The span records exceptions of the block.

    Args:
        incoming: headers of a request, in lower case; the span continues the trace that they name.
    """
    if _tracer is None:
        yield None
        return
    from opentelemetry.trace import SpanKind as Kind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = None if incoming is None else TraceContextTextMapPropagator().extract(incoming)
    with _tracer.start_as_current_span(
        name, context, Kind[kind.upper()], {f"kbqa.{key}": value for key, value in attributes.items()}
    ) as current:
        yield current


def outgoing_headers() -> dict[str, str]:
    """Headers for a request to another service, which connect its logs and spans to ours."""
    headers: dict[str, str] = {}
    request_id = logged("request_id")
    if request_id is not None:
        headers[REQUEST_ID_HEADER] = str(request_id)
    if _tracer is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    return headers
