"""Reference sounds in the containers that people send."""

from __future__ import annotations

import io

import av
import numpy as np
import numpy.typing as npt
import soundfile


def tone(
    seconds: float = 1.0, rate: int = 24_000, channels: int = 1, hertz: float = 220.0
) -> npt.NDArray[np.float32]:
    """A sine F32[samples, channels]."""
    wave = 0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)
    return np.repeat(wave.astype(np.float32)[:, None], channels, axis=1)


def clip(kind: str = "wav", seconds: float = 1.0, rate: int = 24_000, channels: int = 1,
         hertz: float = 220.0) -> bytes:  # fmt: skip
    """A tone as a file: wav, flac, ogg and mp3 by libsndfile, m4a and webm by ffmpeg."""
    sound = tone(seconds, rate, channels, hertz)
    out = io.BytesIO()
    if kind in ("m4a", "webm"):
        _encode(out, sound, rate, *{"m4a": ("ipod", "aac"), "webm": ("webm", "libopus")}[kind])
    else:
        soundfile.write(out, sound, rate, format=kind.upper())
    return out.getvalue()


def _encode(
    out: io.BytesIO, sound: npt.NDArray[np.float32], rate: int, container: str, codec: str
) -> None:
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(
            (sound[:, :1].T * 32767).astype(np.int16), format="s16", layout="mono"
        )
        frame.rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            file.mux(packet)


__all__ = ["clip", "tone"]
