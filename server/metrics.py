"""All metrics of one server, in a registry of its own."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import engine

FIRST_AUDIO_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


class Metrics:
    """Counts what HTTP sees and shows what the engine counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "framecast_requests",
            "HTTP requests by route and status",
            ("route", "status"),
            registry=self.registry,
        )
        self.first_audio = Histogram(
            "framecast_first_audio_seconds",
            "From a request's arrival to its first sound",
            buckets=FIRST_AUDIO_BUCKETS,
            registry=self.registry,
        )
        self.audio_seconds = Counter(
            "framecast_audio_seconds", "Sound handed to replies", registry=self.registry
        )
        self._engine = _EngineCollector()
        self.registry.register(self._engine)

    def render(self, stats: engine.EngineStats) -> bytes:
        """The exposition text, with the engine's numbers as of now."""
        self._engine.stats = stats
        return generate_latest(self.registry)


class _EngineCollector(Collector):
    def __init__(self) -> None:
        self.stats: engine.EngineStats | None = None

    def collect(self) -> Iterator[Metric]:
        stats = self.stats
        if stats is None:
            return
        gauges = {
            "framecast_slots": ("Utterances that can be generated at once", stats.slots),
            "framecast_active_slots": ("Utterances being generated", stats.active),
            "framecast_queue_depth": ("Requests waiting for a slot", stats.queued),
            "framecast_frames_per_second": ("Frames generated lately", stats.frames_per_second),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily(
            "framecast_frames", "Frames of 80 ms generated", value=stats.frames_total
        )
        finished = CounterMetricFamily(
            "framecast_finished", "Utterances by the way they ended", labels=("reason",)
        )
        for reason, count in stats.finished.items():
            finished.add_metric([str(reason)], count)
        yield finished


__all__ = ["Metrics"]
