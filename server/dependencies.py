"""What the routes share: the engine, the names, the metrics and the record of a request."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

import engine
from server.keys import ApiKey
from server.metrics import Metrics
from server.names import Names
from server.playout import Playout
from server.settings import Settings
from server.voices.cloning import Voices

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Service:
    """One server's parts, made by the lifespan of its app.

    `draining` and `warm_up_error` are written by the lifespan and the shutdown, and read by
    `/ready`.
    """

    engine: engine.Engine
    settings: Settings
    names: Names
    voices: Voices
    metrics: Metrics
    formats: tuple[str, ...]
    draining: bool = False
    warm_up_error: str = ""

    @property
    def upload_limit(self) -> int:
        """Bytes of a body that may carry a reference clip, which base64 makes a third longer."""
        return self.settings.max_body_bytes + self.settings.max_clip_bytes * 4 // 3

    @property
    def speech_limit(self) -> int:
        """Bytes of a body that asks for speech: more where a model takes reference sound."""
        clones = any(model.clones for model in self.names.models)
        return self.upload_limit if clones else self.settings.max_body_bytes

    def warm_up(self) -> None:
        """Run the engine's warm-up; blocking, so call it off the loop. Never raises."""
        try:
            self.engine.warm_up()
        except Exception as error:  # a server that cannot speak has to say so, not vanish
            if self.draining:
                return
            log.exception("the warm-up failed")
            self.warm_up_error = f"the warm-up failed: {type(error).__name__}"

    async def drain(self) -> None:
        """Turn `/ready` false, refuse new work and let the active requests finish in time.

        Only the first call waits.
        """
        if self.draining:
            return
        self.draining = True
        await self.engine.drain(self.settings.drain_timeout_s)

    async def not_ready_because(self) -> str:
        """Why the server should get no traffic; empty when it may."""
        health = await self.engine.health()
        if self.draining:
            return "the server is shutting down"
        if not health.alive:
            return health.reason or "the worker is dead"
        return self.warm_up_error or ("" if health.ready else health.reason or "warming up")


@dataclass(slots=True)
class RequestRecord:
    """What the log line and the metrics of one request say; filled while it is served.

    `key` is the name of the API key. `reason` is the finish reason or the error's code; `detail`
    is for the log alone. `frames` and `audio_s` are what was handed to the reply so far.
    `started`, `submitted` (to the engine) and `encoded` (first sound, whole file) are of the
    monotonic clock.
    """

    id: str
    started: float = field(default_factory=time.monotonic)
    status: int = 0
    key: str | None = None
    model: str | None = None
    voice: str | None = None
    frames: int | None = None
    audio_s: float = 0.0
    seed: int | None = None
    first_audio_s: float | None = None
    real_time_factor: float | None = None
    submitted: float | None = None
    encoded: tuple[float, float] | None = None
    stats: engine.Stats | None = None
    playout: Playout | None = None
    reason: str | None = None
    detail: str | None = None


# Coroutines, because a plain function would cost every request a trip to a thread.
async def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def get_record(request: Request) -> RequestRecord:
    record: RequestRecord = request.state.record
    return record


async def get_caller(request: Request) -> ApiKey:
    caller: ApiKey = request.state.caller
    return caller


CallerDep = Annotated[ApiKey, Depends(get_caller)]
ServiceDep = Annotated[Service, Depends(get_service)]
RecordDep = Annotated[RequestRecord, Depends(get_record)]

__all__ = [
    "CallerDep",
    "RecordDep",
    "RequestRecord",
    "Service",
    "ServiceDep",
    "get_caller",
    "get_record",
    "get_service",
]
