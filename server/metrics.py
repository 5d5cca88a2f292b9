"""All metrics of one server, in a registry of its own; `server/README.md` says what each means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

import engine
from server.playout import Playout
from server.version import version

WAIT_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
FACTOR_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 4.0)
GAP_BUCKETS = (0.08, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 2.0, 4.0)
STAGES = ("prefill", "talker", "predictor", "codec")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is read at the moment of a scrape."""

    stats: engine.EngineStats
    ready: bool
    draining: bool


class Metrics:
    """Counts what HTTP sees and shows what the engine counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._engine = _EngineCollector()
        self.registry.register(self._engine)
        ProcessCollector(registry=self.registry)
        self.requests = self._counter(
            "requests", "HTTP requests by route, status and finish reason or error code",
            "route", "status", "reason",
        )  # fmt: skip
        self.first_audio = self._histogram(
            "first_audio_seconds", "From a request's arrival to its first sound", WAIT_BUCKETS
        )
        self.queue_wait = self._histogram(
            "queue_wait_seconds", "Wait for a slot, of requests that finished", WAIT_BUCKETS
        )
        self.real_time_factor = self._histogram(
            "real_time_factor", "Seconds of work per second of sound, without the queue",
            FACTOR_BUCKETS,
        )  # fmt: skip
        self.audio_seconds = self._counter("audio_seconds", "Sound handed to replies")
        self.stage_seconds = self._counter(
            "stage_seconds", "Time a finished request's frames spent in each stage", "stage"
        )
        self.stage_frames = self._counter("stage_frames", "Frames of the requests in stage_seconds")
        self.redraws = self._counter("redraws", "Runaway parts drawn again with another seed")
        self.gap = self._histogram(
            "listener_gap_seconds", "Longest time between two writes of a streamed reply",
            GAP_BUCKETS,
        )  # fmt: skip
        self.underruns = self._counter(
            "listener_underruns", "Writes too late for a listener who started at the first byte"
        )
        self.underrun_seconds = self._counter(
            "listener_underrun_seconds", "Silence that those underruns made"
        )
        self.build = Info("framecast_build", "What is served", ("model",), registry=self.registry)

    def describe(self, loaded: engine.Engine) -> None:
        """Fill in the build information, one series per model."""
        for model in loaded.models:
            facts = {"version": version(), "device": loaded.device, "dtype": loaded.dtype}
            self.build.labels(model.name).info(facts)

    def book_end(self, stats: engine.Stats, real_time_factor: float | None) -> None:
        """Count an utterance that finished."""
        self.queue_wait.observe(stats.queue_s)
        if real_time_factor is not None:
            self.real_time_factor.observe(real_time_factor)
        for stage in STAGES:
            self.stage_seconds.labels(stage).inc(getattr(stats, f"{stage}_s"))
        self.stage_frames.inc(stats.frames)
        self.redraws.inc(stats.redraws)

    def book_playout(self, playout: Playout) -> None:
        """Count a streamed reply that is over, finished or not."""
        self.gap.observe(playout.largest_gap_s)
        self.underruns.inc(playout.underruns)
        self.underrun_seconds.inc(playout.underrun_s)

    def render(self, snapshot: Snapshot) -> bytes:
        """The exposition text, with the engine's numbers as of now."""
        self._engine.snapshot = snapshot
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"framecast_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"framecast_{name}", text, buckets=buckets, registry=self.registry)


class _EngineCollector(Collector):
    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def collect(self) -> Iterator[Metric]:
        if self.snapshot is None:
            return
        stats = self.snapshot.stats
        gauges = {
            "slots": ("Utterances that can be generated at once", stats.slots),
            "active_slots": ("Utterances being generated", stats.active),
            "queue_depth": ("Requests waiting for a slot", stats.queued),
            "frames_per_second": ("Frames generated lately", stats.frames_per_second),
            "memory_bytes": ("Weights, caches and codec state", stats.memory_bytes),
            "ready": ("1 when traffic is welcome", self.snapshot.ready),
            "draining": ("1 while the server shuts down", self.snapshot.draining),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"framecast_{name}", text, value=value)
        yield CounterMetricFamily(
            "framecast_frames", "Frames of 80 ms generated", value=stats.frames_total
        )
        finished = CounterMetricFamily(
            "framecast_finished", "Jobs by the way they ended", labels=("reason",)
        )
        for reason, count in stats.finished.items():
            finished.add_metric([str(reason)], count)
        yield finished


__all__ = ["Metrics", "Snapshot"]
