"""Reference clips: from the bytes of any common container to mono samples at 24 kHz.

Mirrors how the official inference/qwen3_tts_model.py loads a clip: channels averaged, then
resampled by soxr at its high quality as `librosa.resample` does. libsndfile reads what it can (wav,
flac, ogg, mp3), ffmpeg the rest. What is refused is an `InvalidRequest` of the field `ref_audio`.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import av
import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from engine.errors import InvalidRequest
from engine.voice import CLIP_RATE, LEAST_CLIP_S, MOST_CLIP_S, Clip

SAMPLE_RATE = CLIP_RATE
READABLE = "wav, flac, ogg, opus, mp3, m4a (aac) or webm"
SILENCE_DBFS = -45.0

_FIELD = "ref_audio"
_RATES = (8_000, 192_000)
_MOST_CHANNELS = 32
_BLOCK = 1 << 16  # samples read at a time
_WINDOW_S = 0.01  # silence is measured over this
# Demuxers of self-contained files. Others follow names inside a file to other files and hosts.
_CONTAINERS = "aac,aiff,amr,asf,caf,flac,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,mp3,ogg,w64,wav"

F32 = npt.NDArray[np.float32]


def decode_audio(
    data: bytes,
    *,
    least_s: float = LEAST_CLIP_S,
    most_s: float = MOST_CLIP_S,
    trim_silence: bool = False,
) -> F32:
    """Decode a clip to F32[n], mono at 24 kHz, full scale 1.

    `trim_silence` takes away both ends as far as they lie below -45 dBFS; `most_s` holds before
    that, `least_s` after it. A clip longer than `most_s` is given up as soon as that is known.

    Raises:
        InvalidRequest: empty, unreadable or damaged data; no sound track; shorter than `least_s`,
            longer than `most_s`; a sample that is no number.
    """
    if not data:
        _refuse("is empty")
    rate, pcm = _read(data, most_s)
    if not np.isfinite(pcm).all():
        _refuse("holds samples that are not finite numbers")
    if trim_silence:
        pcm = _trimmed(pcm, rate)
    if len(pcm) < least_s * rate:
        heard = " that is not silence" if trim_silence else ""
        _refuse(f"has {len(pcm) / rate:.2f} s of sound{heard}; at least {least_s:g} s are needed")
    return _resampled(pcm, rate)


def read_clip(data: bytes, *, trim_silence: bool = False) -> Clip:
    """The reference clip in the bytes of a sound file, at least 0.3 and at most 60 s.

    It takes up to some tenths of a second of a core: call it off the event loop. Raises
    `InvalidRequest` like `decode_audio`.
    """
    return Clip.of(decode_audio(data, trim_silence=trim_silence))


def _refuse(problem: str) -> NoReturn:
    raise InvalidRequest(f"`{_FIELD}` {problem}", _FIELD)


def _read(data: bytes, most_s: float) -> tuple[int, F32]:
    with suppress(soundfile.SoundFileError):
        return _read_sndfile(data, most_s)
    return _read_ffmpeg(data, most_s)


def _read_sndfile(data: bytes, most_s: float) -> tuple[int, F32]:
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        _check_layout(file.samplerate, file.channels)
        return file.samplerate, _collect(_blocks(file), file.samplerate, most_s)


def _blocks(file: Any) -> Iterator[F32]:
    while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
        yield block.mean(axis=1)


def _read_ffmpeg(data: bytes, most_s: float) -> tuple[int, F32]:
    try:
        options = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "none"}
        with av.open(io.BytesIO(data), "r", options=options) as container:
            if not container.streams.audio:
                _refuse("has no sound track")
            frames = iter(container.decode(container.streams.audio[0]))
            first = next(frames, None)
            if first is None:
                _refuse("has an empty sound track")
            # Of the first frame, not of the header: AAC may double what that says.
            _check_layout(first.rate, first.layout.nb_channels)
            blocks = _converted(itertools.chain((first,), frames), first.rate)
            return first.rate, _collect(blocks, first.rate, most_s)
    except (av.FFmpegError, ValueError) as error:
        message = f"`{_FIELD}` cannot be read: it must be {READABLE}"
        raise InvalidRequest(message, _FIELD) from error


def _converted(frames: Iterator[Any], rate: int) -> Iterator[F32]:
    for frame in frames:
        if frame.rate != rate:
            _refuse("changes its sample rate midway")
        values, channels = frame.to_ndarray(), frame.layout.nb_channels
        # Packed samples come as one row, channel after channel.
        columns = values if frame.format.is_planar else values.reshape(-1, channels).T
        yield _floats(columns).mean(axis=0)


def _floats(values: npt.NDArray[Any]) -> F32:
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    full_scale = float(2 ** (8 * values.dtype.itemsize - 1))
    centre = full_scale if values.dtype.kind == "u" else 0.0
    return ((values - centre) / full_scale).astype(np.float32)


def _check_layout(rate: int, channels: int) -> None:
    low, high = _RATES
    if not low <= rate <= high:
        _refuse(f"has a sample rate of {rate} Hz; it must be from {low} to {high} Hz")
    if not 1 <= channels <= _MOST_CHANNELS:
        _refuse(f"has {channels} channels; it must be 1 to {_MOST_CHANNELS}")


def _collect(blocks: Iterator[F32], rate: int, most_s: float) -> F32:
    held: list[F32] = []
    samples = 0
    for block in blocks:
        held.append(block)
        samples += len(block)
        if samples > most_s * rate:
            _refuse(f"is longer than {most_s:g} s, the most a reference may be")
    return np.concatenate(held) if held else np.zeros(0, np.float32)


def _trimmed(pcm: F32, rate: int) -> F32:
    window = max(1, round(_WINDOW_S * rate))
    padded = np.pad(pcm, (0, -len(pcm) % window)).reshape(-1, window).astype(np.float64)
    loud = np.flatnonzero(np.mean(padded**2, axis=1) >= 10 ** (SILENCE_DBFS / 10))
    if not len(loud):
        return pcm[:0]
    return pcm[loud[0] * window : (loud[-1] + 1) * window]


def _resampled(pcm: F32, rate: int) -> F32:
    if rate == SAMPLE_RATE:
        return pcm
    # librosa's rounding of the length, floating point included.
    samples = math.ceil(len(pcm) * (SAMPLE_RATE / rate))
    out = soxr.resample(pcm, rate, SAMPLE_RATE, quality="HQ")[:samples]
    fitted: F32 = np.pad(out, (0, samples - len(out))).astype(np.float32)
    return fitted


__all__ = ["READABLE", "SAMPLE_RATE", "decode_audio", "read_clip"]
