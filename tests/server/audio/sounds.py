"""Sounds to encode, and what a player makes of a reply."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import av
import numpy as np

from server.audio.formats import FORMATS
from server.audio.sound import Shape, SoundMaker

RATE = 24_000
FRAME = 1_920
CODED = ("mp3", "opus", "aac", "flac")
RAW = {"pcm": "s16le", "ulaw": "mulaw", "alaw": "alaw"}


def sweep(samples: int) -> np.ndarray:
    """F32: a tone that rises to its end, so that a lost end is a lost pitch."""
    hertz = np.linspace(200, 1_500, samples)
    return (0.3 * np.sin(2 * np.pi * np.cumsum(hertz) / RATE)).astype(np.float32)


def tone(samples: int, hertz: float = 440.0) -> np.ndarray:
    """F32: a steady sine."""
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(samples) / RATE)).astype(np.float32)


def pieces(pcm: np.ndarray, chunk: int = FRAME) -> Iterator[np.ndarray]:
    for start in range(0, len(pcm), chunk):
        yield pcm[start : start + chunk]


def shaped(name: str, **wanted: Any) -> Shape:
    return Shape(FORMATS[name], **wanted)


def streamed(shape: Shape, pcm: np.ndarray, chunk: int = FRAME) -> list[bytes]:
    """What every write gives, and the end."""
    maker = SoundMaker(shape, RATE)
    return [*(maker.write(piece) for piece in pieces(pcm, chunk)), maker.finish()]


def whole(shape: Shape, pcm: np.ndarray, chunk: int = FRAME) -> bytes:
    maker = SoundMaker(shape, RATE, whole=True)
    assert not any(maker.write(piece) for piece in pieces(pcm, chunk))
    return maker.finish()


def decode(body: bytes, raw: Shape | None = None) -> tuple[np.ndarray, int]:
    """Every sample ffmpeg gets out of a reply, F32, and the rate; any error is raised.

    Args:
        raw: the shape of a reply without a header.
    """
    about: dict[str, Any] = {}
    if raw is not None:
        about = {"format": RAW[raw.format.name], "options": {"sample_rate": f"{raw.rate(RATE)}"}}
    with av.open(io.BytesIO(body), **about) as container:
        container.streams.audio[0].codec_context.options = {"err_detect": "explode"}
        resampler = av.AudioResampler(format="flt", layout="mono", rate=None)
        frames = list(container.decode(audio=0))
        rate = frames[0].sample_rate
        parts = [out.to_ndarray()[0] for frame in frames for out in resampler.resample(frame)]
    return np.concatenate(parts), rate


def pitch(pcm: np.ndarray, rate: int) -> float:
    """The strongest frequency, Hz."""
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm)), 1 << 19))
    return float(np.argmax(spectrum) * rate / (1 << 19))
