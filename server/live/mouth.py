"""The engine as contexts see it: for one caller, with everything that is spoken booked."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

from engine import (
    Audio,
    Finished,
    LiveStream,
    ModelInfo,
    SpeechRequest,
    Stream,
    UnknownVoice,
    Utterance,
)
from server.dependencies import RequestRecord, Service
from server.keys import ApiKey
from server.orders import start_speech, with_aliases


class ServiceMouth:
    """Speaks for one socket, on behalf of `caller`; see `server.live.segment.Mouth`."""

    def __init__(self, service: Service, record: RequestRecord, caller: ApiKey) -> None:
        self.caller = caller
        self._service = service
        self._record = record
        self._numbers = count(1)
        self._model = service.names.models[0]

    def speak(self, request: SpeechRequest, timeout_s: float | None) -> Stream | Utterance:
        return start_speech(request, self._chosen(request), self._service, **self._job(timeout_s))

    def open(self, request: SpeechRequest, timeout_s: float | None) -> LiveStream:
        model = self._chosen(request)
        try:
            return self._service.engine.open(request, **self._job(timeout_s))
        except UnknownVoice as error:
            raise with_aliases(error, model, self._service) from None

    def heard(self, audio: Audio) -> None:
        model = self._model
        if self._record.first_audio_s is None:
            self._record.first_audio_s = time.monotonic() - self._record.started
        seconds = audio.pcm.size / model.sample_rate
        self._service.metrics.audio_seconds.inc(seconds)
        self._record.audio_s += seconds
        frames = audio.pcm.size // model.samples_per_frame
        self._record.frames = (self._record.frames or 0) + frames

    def finished(self, finished: Finished) -> None:
        stats, model = finished.stats, self._model
        self._record.reason = str(finished.reason)
        seconds = stats.frames * model.samples_per_frame / model.sample_rate
        work = stats.total_s - stats.queue_s
        self._service.metrics.book_end(stats, work / seconds if seconds else None)

    def _chosen(self, request: SpeechRequest) -> ModelInfo:
        self._model = self._service.engine.model(request.model)
        self._record.model = self._model.name
        return self._model

    def _job(self, timeout_s: float | None) -> dict[str, Any]:
        return {
            "id": f"{self._record.id}.{next(self._numbers)}",
            "tenant": self.caller.name,
            "priority": self.caller.priority,
            "timeout_s": timeout_s or self._service.settings.default_timeout_s or None,
        }


__all__ = ["ServiceMouth"]
