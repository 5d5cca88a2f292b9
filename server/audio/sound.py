"""From the model's samples to the bytes of a reply: loudness, tempo, rate, container."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

import engine
from server.audio.encoders import Encoder, open_encoder
from server.audio.formats import AudioFormat
from server.audio.level import Leveller
from server.audio.resample import Resampler
from server.audio.stretch import Stretcher

F32 = npt.NDArray[np.float32]


class Stage(Protocol):
    """Sound in, sound out, later or longer."""

    def write(self, pcm: F32) -> F32:
        """F32[samples] in, those that are ready out."""

    def finish(self) -> F32:
        """The rest."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a listener wants of the sound.

    `sample_rate` None takes the format's own; `speed` 1 and `loudness_lufs` None change nothing.
    """

    format: AudioFormat
    sample_rate: int | None = None
    speed: float = 1.0
    loudness_lufs: float | None = None

    def rate(self, model_rate: int) -> int:
        """The rate of the reply: what was asked for, as far as the format knows it."""
        return self.format.rate_for(self.sample_rate, model_rate)

    def content_type(self, model_rate: int) -> str:
        """The reply's Content-Type."""
        return self.format.content_type(self.rate(model_rate))

    def is_cheap(self, model_rate: int) -> bool:
        """Whether a reply takes nothing but copying: no codec, and the samples as they are."""
        changed = self.speed != 1 or self.loudness_lufs is not None
        return not self.format.codec and not changed and self.rate(model_rate) == model_rate

    def stages(self, model_rate: int) -> list[Stage]:
        """What has to be done to the samples, in order."""
        stages: list[Stage] = []
        if self.loudness_lufs is not None:
            stages.append(Leveller(self.loudness_lufs, model_rate))
        if self.speed != 1:
            stages.append(Stretcher(self.speed, model_rate))
        if self.rate(model_rate) != model_rate:
            stages.append(Resampler(model_rate, self.rate(model_rate)))
        return stages


class SoundMaker:
    """Makes one reply's container; belongs to that reply.

    Its methods burn CPU unless the shape `is_cheap`: call them off the event loop. They may be
    called from different threads.

    Args:
        whole: hold everything back for `finish`, which then knows the length.

    Attributes:
        is_cheap: it may be used on the event loop.
        closed: it makes nothing any more.
    """

    def __init__(self, shape: Shape, model_rate: int, *, whole: bool = False) -> None:
        self.is_cheap = shape.is_cheap(model_rate)
        self._shape = shape
        self._model_rate = model_rate
        self._whole = whole
        self._lock = threading.Lock()
        self._stages: list[Stage] = []
        self._encoder: Encoder | None = None
        self.closed = False

    def write(self, pcm: F32) -> bytes:
        """F32[samples] of the model in, the bytes that are ready out."""
        with self._lock:
            if self.closed:
                return b""
            encoder = self._opened()
            for stage in self._stages:
                pcm = stage.write(pcm)
            return encoder.write(engine.to_pcm16(pcm)) if pcm.size else b""

    def finish(self) -> bytes:
        """The rest of the container."""
        with self._lock:
            encoder = self._opened()
            last = b"".join(encoder.write(engine.to_pcm16(pcm)) for pcm in self._flushed())
            return last + encoder.finish()

    def close(self) -> None:
        """Let go of what it holds, finished or not; waits for a `write` in another thread."""
        with self._lock:
            self.closed = True
            if self._encoder is not None:
                self._encoder.close()

    def _opened(self) -> Encoder:
        # Here and not in the constructor, which may be called on the event loop.
        if self._encoder is None:
            rate = self._shape.rate(self._model_rate)
            self._stages = self._shape.stages(self._model_rate)
            self._encoder = open_encoder(self._shape.format, rate, whole=self._whole)
        return self._encoder

    def _flushed(self) -> list[F32]:
        pieces = []
        for index, stage in enumerate(self._stages):
            pcm = stage.finish()
            for later in self._stages[index + 1 :]:
                pcm = later.write(pcm)
            pieces.append(pcm)
        return [pcm for pcm in pieces if pcm.size]


__all__ = ["Shape", "SoundMaker", "Stage"]
