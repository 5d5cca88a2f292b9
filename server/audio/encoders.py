"""Containers, written while the sound is made: WAV and PCM by hand, the others through ffmpeg
(PyAV).

One encoder object makes one container and belongs to one reply. `write`, `finish` and `close`
burn CPU: call them off the event loop. Encoders take what WAV and PCM send, 16-bit samples, so a
lossless format holds exactly the samples of a WAV.
"""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any, Protocol, cast

import av
import numpy as np

from server.audio.formats import FORMATS, AudioFormat
from server.audio.wav import wav_header


class Encoder(Protocol):
    """Turns mono little-endian 16-bit samples into one container."""

    def write(self, pcm16: bytes) -> bytes:
        """Take more samples; returns what of the container is ready."""

    def finish(self) -> bytes:
        """Flush and return the rest; the encoder is used up."""

    def close(self) -> None:
        """Let go of what it holds, finished or not; may be repeated."""


class PcmEncoder:
    """The samples as they are; with `whole`, all of them come from `finish`."""

    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._held = bytearray()

    def write(self, pcm16: bytes) -> bytes:
        if not self._whole:
            return pcm16
        self._held += pcm16
        return b""

    def finish(self) -> bytes:
        return bytes(self._held)

    def close(self) -> None:
        pass


class WavEncoder:
    """A WAV header, then what another encoder makes of the samples.

    With `whole`, everything comes from `finish`, under a header with the true sizes.
    """

    def __init__(self, inner: Encoder, sample_rate: int, tag: int, whole: bool) -> None:
        self._inner = inner
        self._rate = sample_rate
        self._tag = tag
        self._whole = whole
        self._begun = False
        self._held = bytearray()

    def write(self, pcm16: bytes) -> bytes:
        data = self._inner.write(pcm16)
        if self._whole:
            self._held += data
            return b""
        return self._headed(data)

    def finish(self) -> bytes:
        data = self._inner.finish()
        if not self._whole:
            return self._headed(data)
        self._held += data
        return wav_header(self._rate, len(self._held), self._tag) + bytes(self._held)

    def close(self) -> None:
        self._inner.close()

    def _headed(self, data: bytes) -> bytes:
        if self._begun:
            return data
        self._begun = True
        return wav_header(self._rate, None, self._tag) + data


class AvEncoder:
    """Any ffmpeg container and codec; raises `av.FFmpegError` where ffmpeg lacks one.

    With `whole`, everything comes from `finish`, and a container that has a length in its header
    gets it right.
    """

    def __init__(self, audio_format: AudioFormat, sample_rate: int, whole: bool) -> None:
        self._sample_rate = sample_rate
        self._sink: _Sink | io.BytesIO = io.BytesIO() if whole else _Sink()
        # Bit-exact output: no encoder version in the file, the same bytes for the same sound.
        options = {"fflags": "+bitexact+flush_packets", **audio_format.container_options}
        self._container = av.open(self._sink, "w", format=audio_format.container, options=options)
        # An audio stream, which the types of `add_stream` cannot tell for a name that varies.
        stream = cast(
            Any,
            self._container.add_stream(
                audio_format.codec, rate=sample_rate, options=dict(audio_format.codec_options)
            ),
        )
        stream.layout = "mono"
        stream.format = _sample_format(stream.codec_context.codec)
        if audio_format.bit_rate:
            stream.bit_rate = audio_format.bit_rate
        self._stream = stream
        self._converter = av.AudioResampler(stream.format, "mono", sample_rate)
        self._skip = audio_format.skip_packets
        self._position = 0

    def write(self, pcm16: bytes) -> bytes:
        if not pcm16:
            return b""
        samples = np.frombuffer(pcm16, dtype="<i2").reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = self._sample_rate
        frame.time_base = Fraction(1, self._sample_rate)
        frame.pts = self._position
        self._position += frame.samples
        self._encode(frame)
        return self._sink.take() if isinstance(self._sink, _Sink) else b""

    def finish(self) -> bytes:
        self._encode(None)
        self._mux(self._stream.encode(None))
        self.close()
        return self._sink.take() if isinstance(self._sink, _Sink) else self._sink.getvalue()

    def close(self) -> None:
        self._container.close()

    def _encode(self, frame: av.AudioFrame | None) -> None:
        for converted in self._converter.resample(frame):
            self._mux(self._stream.encode(converted))

    def _mux(self, packets: list[Any]) -> None:
        for packet in packets:
            if self._skip > 0:
                self._skip -= 1
            else:
                self._container.mux(packet)


class _Sink:
    # A file that cannot seek: ffmpeg writes headers that need no going back.
    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


def open_encoder(audio_format: AudioFormat, sample_rate: int, *, whole: bool = False) -> Encoder:
    """A fresh encoder for one reply; `whole` holds everything back for `finish`, which then
    knows the length."""
    tag = audio_format.wav_tag
    if audio_format.codec:
        inner: Encoder = AvEncoder(audio_format, sample_rate, whole and tag is None)
    else:
        inner = PcmEncoder(whole and tag is None)
    return inner if tag is None else WavEncoder(inner, sample_rate, tag, whole)


def available_formats() -> tuple[str, ...]:
    """The formats this machine can make, found by making a tenth of a second of each."""
    return tuple(name for name, entry in FORMATS.items() if _works(entry))


def _works(audio_format: AudioFormat) -> bool:
    rate = audio_format.rate_for(None, 24_000)
    try:
        encoder = open_encoder(audio_format, rate)
        made = encoder.write(bytes(2 * (rate // 10)))
        return bool(made + encoder.finish())
    except (av.FFmpegError, ValueError):  # ValueError: a codec this ffmpeg was built without
        return False


def _sample_format(codec: Any) -> str:
    names = [entry.name for entry in codec.audio_formats or ()]
    return "s16" if "s16" in names or not names else str(names[0])


__all__ = [
    "AvEncoder",
    "Encoder",
    "PcmEncoder",
    "WavEncoder",
    "available_formats",
    "open_encoder",
]
