"""Spans of OpenTelemetry, from service to service; nothing at all until tracing is started.

    with traced("gateway", "http://collector:4318"):
        with span("policy", episodes=8):
            ...
        httpx.post(url, headers=outgoing_headers())     # the other service goes on with this trace

The request id of `log_context`, which logs show, goes to the other service by the same headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from kbqa.errors import ConfigurationError
from kbqa.telemetry import logged

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

REQUEST_ID_HEADER = "X-Request-ID"

SpanKind = Literal["internal", "client", "server"]

# One for the process, as its log is: whoever makes a span should not have to be handed it.
_tracer: Tracer | None = None


@contextmanager
def traced(service: str, url: str | None) -> Iterator[None]:
    """Send the spans of the block to the collector at `url`; with None there are none.

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
    """Sends spans to a collector by OTLP over HTTP.

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
    """Record spans from now on; returns what ends that, once the rest has been exported.

    Which share of traces is recorded is OpenTelemetry's own OTEL_TRACES_SAMPLER to say; all, if unset.

    Args:
        service: its name in traces.
        batched: export from a thread, now and then; otherwise each span at its end (tests).
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
    """A span around the block, None where nothing is traced. What the block raises is recorded in it.

    Args:
        incoming: headers of a request, in lower case; the span goes on with the trace that they name.
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
    """What a request to another service carries, so that its logs and spans belong to ours."""
    headers: dict[str, str] = {}
    request_id = logged("request_id")
    if request_id is not None:
        headers[REQUEST_ID_HEADER] = str(request_id)
    if _tracer is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    return headers
