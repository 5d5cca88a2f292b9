"""Containers for one finished utterance: WAV and PCM by hand, the others through ffmpeg (PyAV).

One encoder object makes one container and belongs to one reply. `write` and `finish` burn CPU:
call them off the event loop. Encoders take what WAV and PCM send, 16-bit samples, so a lossless
format holds exactly the samples of a WAV.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, cast

import av
import numpy as np

from server.audio.wav import wav_header


class Encoder(Protocol):
    """Turns mono little-endian 16-bit samples into one container."""

    def write(self, pcm16: bytes) -> None:
        """Take more samples."""

    def finish(self) -> bytes:
        """Flush, close and return the whole container; the encoder is used up."""


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """A `response_format`: what it is called on the wire and how it is made.

    `container`, `codec`, `codec_options` and `container_options` are ffmpeg's names; `rate` is
    the rate it is encoded at (None: the model's). `skip_packets` leaves out that many packets of
    encoder delay at the start.
    """

    name: str
    media_type: str
    streams: bool = False
    container: str = ""
    codec: str = ""
    rate: int | None = None
    bit_rate: int | None = None
    skip_packets: int = 0
    codec_options: Mapping[str, str] = field(default_factory=dict)
    container_options: Mapping[str, str] = field(default_factory=dict)

    def content_type(self, sample_rate: int) -> str:
        """The reply's Content-Type; raw PCM has to state its rate there."""
        if self.name == "pcm":
            return f"{self.media_type};rate={sample_rate};channels=1"
        return self.media_type


# MP3 carries no Xing header (clients join replies), so nothing tells a decoder to trim the
# encoder's delay of 46 ms. Its first packet is delay only: without the bit reservoir no other
# packet refers to it, and it is left out. ADTS has no place for trimming either; at 48 kHz the
# delay of 1,024 samples is half as long.
FORMATS = {
    entry.name: entry
    for entry in (
        AudioFormat(
            "mp3", "audio/mpeg", container="mp3", codec="libmp3lame", bit_rate=96_000,
            skip_packets=1, codec_options={"reservoir": "0"},
            container_options={"write_xing": "0", "id3v2_version": "0"},
        ),
        AudioFormat("opus", "audio/ogg", container="ogg", codec="libopus", bit_rate=48_000),
        AudioFormat(
            "aac", "audio/aac", container="adts", codec="aac", rate=48_000, bit_rate=96_000
        ),
        AudioFormat("flac", "audio/flac", container="flac", codec="flac"),
        AudioFormat("wav", "audio/wav", streams=True),
        AudioFormat("pcm", "audio/pcm", streams=True),
    )
}  # fmt: skip


class PcmEncoder:
    """The samples as they are, with a WAV header before them if asked."""

    def __init__(self, sample_rate: int, header: bool) -> None:
        self._sample_rate = sample_rate
        self._header = header
        self._pcm = bytearray()

    def write(self, pcm16: bytes) -> None:
        self._pcm += pcm16

    def finish(self) -> bytes:
        header = wav_header(self._sample_rate, len(self._pcm)) if self._header else b""
        return header + bytes(self._pcm)


class AvEncoder:
    """Any ffmpeg container and codec; raises `av.FFmpegError` where ffmpeg lacks one."""

    def __init__(self, audio_format: AudioFormat, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._buffer = io.BytesIO()
        # Bit-exact output: no encoder version in the file, the same bytes for the same sound.
        options = {"fflags": "+bitexact", **audio_format.container_options}
        self._container = av.open(self._buffer, "w", format=audio_format.container, options=options)
        rate = audio_format.rate or sample_rate
        # An audio stream, which the types of `add_stream` cannot tell for a name that varies.
        stream = cast(
            Any,
            self._container.add_stream(
                audio_format.codec, rate=rate, options=dict(audio_format.codec_options)
            ),
        )
        stream.layout = "mono"
        stream.format = _sample_format(stream.codec_context.codec)
        if audio_format.bit_rate:
            stream.bit_rate = audio_format.bit_rate
        self._stream = stream
        self._resampler = av.AudioResampler(format=stream.format, layout="mono", rate=rate)
        self._skip = audio_format.skip_packets
        self._position = 0

    def write(self, pcm16: bytes) -> None:
        samples = np.frombuffer(pcm16, dtype="<i2").reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = self._sample_rate
        frame.time_base = Fraction(1, self._sample_rate)
        frame.pts = self._position
        self._position += frame.samples
        self._encode(frame)

    def finish(self) -> bytes:
        self._encode(None)
        self._mux(self._stream.encode(None))
        self._container.close()
        return self._buffer.getvalue()

    def _encode(self, frame: av.AudioFrame | None) -> None:
        for resampled in self._resampler.resample(frame):
            self._mux(self._stream.encode(resampled))

    def _mux(self, packets: list[Any]) -> None:
        for packet in packets:
            if self._skip > 0:
                self._skip -= 1
            else:
                self._container.mux(packet)


def open_encoder(audio_format: AudioFormat, sample_rate: int) -> Encoder:
    """A fresh encoder for one reply."""
    if audio_format.codec:
        return AvEncoder(audio_format, sample_rate)
    return PcmEncoder(sample_rate, header=audio_format.name == "wav")


def available_formats() -> tuple[str, ...]:
    """The formats this machine can make, found by making a tenth of a second of each."""
    return tuple(name for name, entry in FORMATS.items() if _works(entry))


def _works(audio_format: AudioFormat) -> bool:
    try:
        encoder = open_encoder(audio_format, 24_000)
        encoder.write(bytes(2 * 2_400))
        return bool(encoder.finish())
    except (av.FFmpegError, ValueError):  # ValueError: a codec this ffmpeg was built without
        return False


def _sample_format(codec: Any) -> str:
    names = [entry.name for entry in codec.audio_formats or ()]
    return "s16" if "s16" in names or not names else str(names[0])


__all__ = [
    "FORMATS",
    "AudioFormat",
    "AvEncoder",
    "Encoder",
    "PcmEncoder",
    "available_formats",
    "open_encoder",
]
