"""Spans of requests that are over."""

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", exc_type=ImportError)

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import engine
from server.dependencies import RequestRecord
from server.tracing import Tracing, open_tracing
from tests.fakes import Script
from tests.server.conftest import SPEECH

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATS = engine.Stats(
    frames=5, seed=7, queue_s=0.5, prefill_s=0.25, first_audio_s=1.0, total_s=2.0, talker_s=0.75
)


def record(**fields):
    now = time.monotonic()
    values = {
        "started": now - 4, "submitted": now - 3, "status": 200, "reason": "stop", "stats": STATS,
        "model": "fake-voice", "voice": "vivian", "frames": 5, "seed": 7, "first_audio_s": 2.0,
    }  # fmt: skip
    return RequestRecord("abc", **(values | fields))


def book(made, headers=()):
    """Name of each span -> span."""
    exporter = InMemorySpanExporter()
    scope = {"method": "POST", "headers": [(k.encode(), v.encode()) for k, v in headers]}
    Tracing(SimpleSpanProcessor(exporter)).book(scope, "/audio/speech", made)
    return {span.name: span for span in exporter.get_finished_spans()}


def seconds(span, origin):
    return [round((at - origin.start_time) / 1e9, 3) for at in (span.start_time, span.end_time)]


def test_a_request_is_a_span_with_its_phases_below_it():
    now = time.monotonic()
    spans = book(record(encoded=(now - 2, now - 0.5)))
    request = spans.pop("POST /audio/speech")
    assert request.kind is SpanKind.SERVER and request.parent is None
    assert set(spans) == {"queue", "prefill", "frames", "encode"}
    for span in spans.values():
        assert span.parent.span_id == request.context.span_id
        assert span.context.trace_id == request.context.trace_id
    assert seconds(spans["queue"], request) == [1.0, 1.5]
    assert seconds(spans["prefill"], request) == [1.5, 1.75]
    assert seconds(spans["frames"], request) == [1.75, 3.0]
    assert seconds(spans["encode"], request) == [2.0, 3.5]
    assert spans["frames"].attributes["framecast.talker_s"] == 0.75


def test_a_span_says_what_was_asked_and_how_it_went():
    attributes = book(record(key="alice"))["POST /audio/speech"].attributes
    assert dict(attributes) == {
        "http.request.method": "POST",
        "http.route": "/audio/speech",
        "http.response.status_code": 200,
        "framecast.id": "abc",
        "framecast.key": "alice",
        "framecast.model": "fake-voice",
        "framecast.voice": "vivian",
        "framecast.frames": 5,
        "framecast.seed": 7,
        "framecast.reason": "stop",
    }


def test_the_first_sound_is_an_event():
    [event] = book(record())["POST /audio/speech"].events
    assert event.name == "first sound"


def test_the_prefills_of_a_long_text_do_not_reach_past_its_first_sound():
    stats = engine.Stats(frames=5, seed=7, prefill_s=9.0, first_audio_s=1.0, total_s=2.0)
    spans = book(record(stats=stats))
    assert seconds(spans["prefill"], spans["POST /audio/speech"]) == [1.0, 2.0]
    assert seconds(spans["frames"], spans["POST /audio/speech"]) == [2.0, 3.0]


def test_the_callers_trace_is_continued():
    span = book(record(), [("traceparent", PARENT)])["POST /audio/speech"]
    assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]


def test_a_caller_who_does_not_sample_is_followed():
    assert book(record(), [("traceparent", PARENT[:-1] + "0")]) == {}


def test_a_broken_traceparent_starts_a_trace_of_its_own():
    assert book(record(), [("traceparent", "00-zz")])["POST /audio/speech"].parent is None


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (200, "stop", StatusCode.UNSET),
        (400, "voice_not_found", StatusCode.UNSET),
        (200, "cancelled", StatusCode.UNSET),
        (503, "unavailable", StatusCode.ERROR),
        (200, "generation_failed", StatusCode.ERROR),
    ],
)
def test_faults_of_ours_are_errors_and_others_are_not(status, reason, code):
    span = book(record(status=status, reason=reason, stats=None))["POST /audio/speech"]
    assert span.status.status_code is code


def test_a_request_that_never_ran_has_no_phases():
    refused = record(stats=None, submitted=None, first_audio_s=None, status=400)
    assert set(book(refused)) == {"POST /audio/speech"}


class Collector:
    """The receiving end of OTLP over HTTP, as a real socket."""

    def __init__(self):
        self.spans = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.take(self.path, body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path, body):
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans |= {span.name: span for span in scope.spans}

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.mark.anyio
async def test_a_server_sends_its_traces_to_a_collector_before_it_ends(connect, fake):
    fake.script = Script(frames=3)
    with Collector() as collector:
        async with connect(otlp_endpoint=collector.url) as client:
            body = {"input": "Hi.", "response_format": "flac"}
            await client.post(SPEECH, json=body, headers={"traceparent": PARENT})
            await client.get("/health")
        spans = collector.spans
    assert set(spans) == {"POST /audio/speech", "queue", "prefill", "frames", "encode"}
    request = spans["POST /audio/speech"]
    assert request.trace_id.hex() == PARENT.split("-")[1]
    assert request.start_time_unix_nano <= spans["queue"].start_time_unix_nano
    assert spans["encode"].end_time_unix_nano <= request.end_time_unix_nano


@pytest.mark.parametrize("tail", ["", "/", "/v1/traces"])
@pytest.mark.anyio
async def test_the_endpoint_may_name_the_path_or_not(tail):
    with Collector() as collector:
        tracing = open_tracing(collector.url + tail)
        tracing.book({"method": "GET", "headers": []}, "/models", record(stats=None))
        await tracing.aclose()
    assert set(collector.spans) == {"GET /models"}
