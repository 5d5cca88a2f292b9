"""Stand-ins with the engine's public interface and a script instead of a model.

Nothing here sleeps or has a thread: `FakeEngine.speak` publishes what its script lets out at
once, and `advance` lets out more, so a test decides when every frame comes.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

import engine
import engine.stream

SAMPLE_RATE = 24_000
SAMPLES_PER_FRAME = 1_920
SPEAKERS = ("aiden", "dylan", "ryan", "vivian")
T = TypeVar("T")

LANGUAGES = ("chinese", "english", "german")


def model_info(**changes: object) -> engine.ModelInfo:
    """A CustomVoice model with four speakers, unless told otherwise."""
    facts: dict[str, object] = {
        "name": "fake-voice",
        "task": "custom_voice",
        "size": "1b7",
        "speakers": SPEAKERS,
        "languages": LANGUAGES,
        "default_voice": "aiden",
        "accepts_instructions": True,
        "sample_rate": SAMPLE_RATE,
        "samples_per_frame": SAMPLES_PER_FRAME,
        "speaker_width": 8,
        "created": 1_700_000_000,
    }
    return engine.ModelInfo(**(facts | changes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Script:
    """What one request does.

    Args:
        frames: frames of sound it makes before its end.
        at_once: frames published by `speak` itself; the rest, and the end, wait for `advance`.
            None publishes everything, the end too.
        refuse: raised by `speak`.
        fail: the end is this error instead of a finish.
        reason: the finish reason.
        warnings: the stream's warnings.
    """

    frames: int = 5
    at_once: int | None = None
    refuse: BaseException | None = None
    fail: engine.EngineError | None = None
    reason: engine.FinishReason = engine.FinishReason.STOP
    warnings: tuple[str, ...] = ()


def frame_pcm(index: int, hertz: float = 440.0) -> np.ndarray:
    """Frame `index` of an endless sine: F32[1920], -10 dBFS peak."""
    t = np.arange(index * SAMPLES_PER_FRAME, (index + 1) * SAMPLES_PER_FRAME) / SAMPLE_RATE
    return (0.316 * np.sin(2 * np.pi * hertz * t)).astype(np.float32)


def pcm16(frames: int) -> bytes:
    """The first `frames` frames as 16-bit samples."""
    return b"".join(engine.to_pcm16(frame_pcm(index)) for index in range(frames))


def base_info(**changes: object) -> engine.ModelInfo:
    """A Base model that clones, unless told otherwise."""
    facts: dict[str, object] = {
        "name": "fake-base",
        "task": "base",
        "speakers": (),
        "default_voice": None,
        "accepts_instructions": False,
        "clones": True,
        "clones_in_context": True,
    }
    return model_info(**(facts | changes))


def _there(value: T) -> engine.Pending[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return engine.Pending(future)


@dataclass
class _Job:
    script: Script
    stream: engine.Stream
    made: int = 0
    open: bool = False  # its text has not ended


class FakeLive(engine.stream.Readable):
    """A stream whose text is still open: each `append` is one frame of sound. `limit` characters
    fit; `text` is what has come."""

    limit = 400

    def __init__(self, owner: FakeEngine, job: _Job, text: str) -> None:
        self.id = job.stream.id
        self.seed = job.stream.seed
        self.sample_rate = job.stream.sample_rate
        self.warnings = job.stream.warnings
        self.text = ""
        self._owner = owner
        self._job = job
        if text:
            self.append(text)

    @property
    def ended(self) -> bool:
        return self._job.stream.ended

    @property
    def tokens(self) -> int:
        return len(self.text)

    def append(self, text: str) -> None:
        if self._job.stream.error is not None:
            raise self._job.stream.error
        if self.ended or not self._job.open:
            raise engine.InvalidRequest("the text has ended", "text")
        if len(self.text) + len(text) > self.limit:
            raise engine.InvalidRequest("it does not fit", "text")
        self.text += text
        self._owner.feed(self._job, 1)

    def end(self) -> None:
        if self._job.open and not self.ended:
            self._job.open = False
            self._owner.feed(self._job, 0)

    def cancel(self) -> None:
        self._job.stream.cancel()

    def get(self) -> engine.stream.Item:
        return self._job.stream.get()

    async def read(self) -> engine.stream.Item:
        return await self._job.stream.read()


@dataclass
class FakeEngine:
    """An engine that follows `script`; `requests`, `envelopes` (the other arguments of `speak`),
    `cancelled` and `active` tell what happened.

    `warm` held back keeps `warm_up` waiting; `alive` False is a dead worker.
    """

    script: Script = field(default_factory=Script)
    models: tuple[engine.ModelInfo, ...] = field(default_factory=lambda: (model_info(),))
    warm: threading.Event = field(default_factory=threading.Event)
    warm_up_error: Exception | None = None
    alive: bool = True
    config: engine.EngineConfig = field(default_factory=engine.EngineConfig)
    device: str = "cpu"
    dtype: str = "f32"

    def __post_init__(self) -> None:
        self.requests: list[engine.SpeechRequest] = []
        self.lives: list[FakeLive] = []
        self.envelopes: list[dict[str, object]] = []
        self.cancelled: list[str] = []
        self.extracted: list[engine.Clip] = []
        self.purged: list[engine.Voice] = []
        self.closed = False
        self.draining = False
        self.frames_total = 0
        self.finished: dict[str, int] = {}
        self._jobs: dict[str, _Job] = {}
        self._changed = threading.Condition(threading.RLock())
        self._ids = itertools.count()
        self._is_warm = False

    def model(self, name: str | None) -> engine.ModelInfo:
        for model in self.models:
            if name in (None, model.name):
                return model
        raise engine.ModelNotFound(f"model {name!r} is not loaded")

    def submit(
        self,
        request: engine.SpeechRequest,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
        streaming: bool = True,
        redraw: bool = False,
    ) -> engine.Stream:
        script = self.script
        self.requests.append(request)
        self.envelopes.append(
            {
                "tenant": tenant,
                "priority": priority,
                "timeout_s": timeout_s,
                "streaming": streaming,
                "redraw": redraw,
            }
        )
        if script.refuse is not None:
            raise script.refuse
        if self.draining:
            raise engine.EngineUnavailable("the engine is draining")
        self._check(request)
        job_id = f"{id or 'job'}#{next(self._ids)}"
        seed = request.sampling.seed
        stream = engine.Stream(
            job_id,
            seed=1234 if seed is None else seed,
            sample_rate=self.model(request.model).sample_rate,
            max_bytes=1 << 24,
            on_cancel=lambda: self._on_cancel(job_id),
            warnings=script.warnings,
        )
        stream.spoken_text = f"{request.text} (as spoken)"
        with self._changed:
            self._jobs[job_id] = _Job(script, stream)
            at_once = script.frames + 1 if script.at_once is None else script.at_once
            self._advance(job_id, at_once)
            self._changed.notify_all()
        return stream

    speak = submit

    def open(
        self,
        request: engine.SpeechRequest,
        *,
        id: str | None = None,  # noqa: A002
        tenant: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
        input_timeout_s: float | None = None,
    ) -> FakeLive:
        if len(request.text) > FakeLive.limit:
            raise engine.InvalidRequest("it does not fit", "text")
        script, self.script = self.script, replace(self.script, at_once=0)
        try:
            stream = self.submit(
                request, id=id, tenant=tenant, priority=priority, timeout_s=timeout_s
            )
        finally:
            self.script = script
        self.envelopes[-1]["input_timeout_s"] = input_timeout_s
        with self._changed:
            job = self._jobs[stream.id]
            job.script, job.open = script, True
        live = FakeLive(self, job, request.text)
        self.lives.append(live)
        return live

    def check(self, request: engine.SpeechRequest) -> None:
        self._check(request)

    def feed(self, job: _Job, frames: int) -> None:
        """Publish sound of an open text, and at the end of the text what else there is."""
        with self._changed:
            if job.stream.id not in self._jobs:
                return
            at_once = job.script.at_once is None
            self._advance(job.stream.id, frames if job.open else (job.script.frames + 1) * at_once)

    def extract_voice(
        self,
        clip: engine.Clip,
        *,
        transcript: str | None = None,
        model: str | None = None,
        ref_tail_silence: float = 0.5,
    ) -> engine.Pending[engine.Voice]:
        """A voice that follows from the clip; `script.refuse` is raised."""
        if self.script.refuse is not None:
            raise self.script.refuse
        info = self.model(model)
        self.extracted.append(clip)
        drawn = np.random.default_rng(int(clip.digest[:8], 16))
        frames = clip.frames(SAMPLES_PER_FRAME, ref_tail_silence)
        codes = drawn.integers(0, info.codebook_size, (info.code_groups, frames))
        voice = engine.Voice(
            drawn.standard_normal(info.speaker_width),
            None if transcript is None else codes,
            transcript,
            tail_silence_s=0.0 if transcript is None else ref_tail_silence,
            model=info.name,
            clip=clip.digest,
            warnings=self.script.warnings,
        )
        return _there(voice)

    def check_voice(self, voice: engine.Voice, model: str | None = None) -> None:
        width = self.model(model).speaker_width
        if voice.embedding is not None and voice.embedding.size != width:
            raise engine.InvalidRequest(
                f"`speaker_embedding` must have {width} values", "speaker_embedding"
            )

    def purge_voice(self, voice: engine.Voice) -> engine.Pending[int]:
        self.purged.append(voice)
        return _there(voice.nbytes)

    def advance(self, frames: int = 1) -> None:
        """Publish up to `frames` more frames of every active request; one more ends it."""
        with self._changed:
            for job_id in [each for each, job in self._jobs.items() if not job.open]:
                self._advance(job_id, frames)

    @property
    def active(self) -> int:
        """Requests neither ended nor cancelled."""
        return len(self._jobs)

    def wait_for(self, active: int, timeout_s: float = 10.0) -> bool:
        """Block until so many requests are active; False when that does not happen."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._jobs) == active, timeout_s)

    def warm_up(self) -> None:
        self.warm.wait()
        if self.warm_up_error is not None:
            raise self.warm_up_error
        self._is_warm = True

    async def health(self) -> engine.Health:
        ready = self.alive and self._is_warm and not self.draining
        return engine.Health(self.alive, ready, "" if ready else "not ready, says the fake")

    async def stats(self) -> engine.EngineStats:
        return engine.EngineStats(
            8, len(self._jobs), 3, self.frames_total, 37.5, self.finished, 1 << 20
        )

    async def drain(self, timeout_s: float) -> None:
        self.draining = True

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        self.warm.set()
        with self._changed:
            for job in self._jobs.values():
                job.stream.fail(engine.EngineUnavailable("the engine is closed"))
            self._jobs.clear()

    def _check(self, request: engine.SpeechRequest) -> None:
        model = self.model(request.model)
        speakers = [speaker.lower() for speaker in model.speakers]
        named = request.voice if isinstance(request.voice, str) else None
        if named is not None and named.lower() not in speakers:
            raise engine.UnknownVoice(named, model.speakers)
        if request.language.lower() not in ("auto", "en", *model.languages):
            known = ", ".join(model.languages)
            raise engine.InvalidRequest(
                f"unknown language {request.language!r}; available: {known}", "language"
            )

    def _advance(self, job_id: str, frames: int) -> None:
        job = self._jobs[job_id]
        for _ in range(frames):
            if job.made >= job.script.frames and not job.open:
                self._end(job_id)
                return
            job.stream.publish(engine.Audio(job.made, frame_pcm(job.made)))
            job.made += 1
            self.frames_total += 1

    def _end(self, job_id: str) -> None:
        job = self._jobs.pop(job_id)
        self._changed.notify_all()
        if job.script.fail is not None:
            job.stream.fail(job.script.fail)
            return
        stats = engine.Stats(
            job.made, job.stream.seed, queue_s=0.001, first_audio_s=0.1, total_s=0.2
        )
        job.stream.finish(engine.Finished(job.script.reason, stats))
        self.finished[job.script.reason] = self.finished.get(job.script.reason, 0) + 1

    def _on_cancel(self, job_id: str) -> None:
        with self._changed:
            self.cancelled.append(job_id)
            self._jobs.pop(job_id, None)
            self._changed.notify_all()


__all__ = ["FakeEngine", "FakeLive", "Script", "base_info", "frame_pcm", "model_info", "pcm16"]
