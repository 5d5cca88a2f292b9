"""OpenTelemetry traces; imported only when they are asked for, for they need the extra `otel`.

A request's spans are made when it is over, from the times its record holds:

    POST /audio/speech            arrival to the last byte; continues the caller's `traceparent`
      queue                       handed to the engine to a slot
      prefill                     the prompt
      frames                      the first frame to the last
      encode                      buffered replies: the first sound to the encoded file
"""

from __future__ import annotations

import asyncio
import time

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

import engine
from server.dependencies import RequestRecord
from server.errors import ANSWERS
from server.version import version

TRACES_PATH = "/v1/traces"
# A collector that is down holds up the shutdown for so long.
EXPORT_TIMEOUT_S = 3.0
FAULTS = {answer.code for answer in ANSWERS.values() if answer.status >= 500}


class Tracing:
    """Turns records of requests into spans.

    Sampler and resource follow the SDK's own `OTEL_...` variables.
    """

    def __init__(self, processor: SpanProcessor) -> None:
        resource = Resource.create({"service.name": "framecast", "service.version": version()})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("framecast")
        self._propagator = TraceContextTextMapPropagator()

    def book(self, scope: Scope, route: str, record: RequestRecord) -> None:
        """Make the spans of a request that is over."""
        headers = {key.decode("latin-1"): text.decode("latin-1") for key, text in scope["headers"]}
        clock = _WallClock()
        span = self._tracer.start_span(
            f"{scope['method']} {route}",
            self._propagator.extract(headers, Context()),
            SpanKind.SERVER,
            _attributes(scope, route, record),
            start_time=clock.at(record.started),
        )
        if record.first_audio_s is not None:
            heard = clock.at(record.started + record.first_audio_s)
            span.add_event("first sound", timestamp=heard)
        for name, start, end in _phases(record):
            self._child(span, name, clock.at(start), clock.at(end), record.stats)
        if record.status >= 500 or record.reason in FAULTS:
            span.set_status(StatusCode.ERROR, record.reason)
        span.end(clock.now)

    async def aclose(self) -> None:
        """Send what is left; waits for the collector, at most `EXPORT_TIMEOUT_S`."""
        await asyncio.to_thread(self._provider.shutdown)

    def _child(
        self, parent: Span, name: str, start: int, end: int, stats: engine.Stats | None
    ) -> None:
        context = set_span_in_context(parent, Context())
        span = self._tracer.start_span(name, context, start_time=start)
        if stats is not None and name == "frames":
            for stage in ("talker", "predictor", "codec"):
                span.set_attribute(f"framecast.{stage}_s", getattr(stats, f"{stage}_s"))
        span.end(end)


class _WallClock:
    """Monotonic seconds as the nanoseconds since the epoch that spans want."""

    def __init__(self) -> None:
        self.now = time.time_ns()
        self._offset = self.now - time.monotonic_ns()

    def at(self, monotonic_s: float) -> int:
        return int(monotonic_s * 1e9) + self._offset


def open_tracing(endpoint: str) -> Tracing:
    """Traces to an OTLP/HTTP collector, given by its address with or without `/v1/traces`."""
    url = endpoint.rstrip("/").removesuffix(TRACES_PATH) + TRACES_PATH
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=EXPORT_TIMEOUT_S)))


def _phases(record: RequestRecord) -> list[tuple[str, float, float]]:
    phases = []
    stats, start = record.stats, record.submitted
    if stats is not None and start is not None:
        admitted = start + stats.queue_s
        # A long text's prefills are summed; the first one was over before the first sound.
        prompted = min(admitted + stats.prefill_s, max(admitted, start + stats.first_audio_s))
        phases = [
            ("queue", start, admitted),
            ("prefill", admitted, prompted),
            ("frames", prompted, max(prompted, start + stats.total_s)),
        ]
    if record.encoded is not None:
        phases.append(("encode", *record.encoded))
    return phases


def _attributes(scope: Scope, route: str, record: RequestRecord) -> dict[str, str | int]:
    attributes = {
        "http.request.method": scope["method"],
        "http.route": route,
        "http.response.status_code": record.status,
        "framecast.id": record.id,
        "framecast.key": record.key,
        "framecast.model": record.model,
        "framecast.voice": record.voice,
        "framecast.frames": record.frames,
        "framecast.seed": record.seed,
        "framecast.reason": record.reason,
    }
    return {name: value for name, value in attributes.items() if value is not None}


__all__ = ["Tracing", "open_tracing"]
