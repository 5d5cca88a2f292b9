"""Voices as pure data: the clip one comes from, and what a model makes of it. No tensors.

Arrays are copied and cannot be written afterwards, so clips and voices may be shared by threads,
and their digests stay true.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import InvalidRequest

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

CLIP_RATE = 24_000
LEAST_CLIP_S = 0.3
MOST_CLIP_S = 60.0
MOST_TAIL_S = 2.0
TAIL_S = 0.5  # what is appended unless a caller says otherwise

_WINDOW = CLIP_RATE // 100  # loudness is measured over 10 ms
_BELOW_LOUD = 1e-3  # 30 dB below a loud window it is quiet
_BRIDGED = 30  # a gap of up to so many windows belongs to the words around it


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A reference sound: F32[n], mono at 24 kHz, full scale 1. Made by `of` or `read_clip`.

    Args:
        digest: SHA-256 of the samples, in hex.
        speech_s: seconds without quiet ends and pauses of more than 0.3 s.
    """

    pcm: F32
    digest: str
    speech_s: float

    @classmethod
    def of(cls, pcm: npt.NDArray[Any]) -> Clip:
        """The clip of samples [n], mono at 24 kHz.

        Raises:
            InvalidRequest: of `ref_audio`: another shape, a sample that is no finite number,
                shorter than 0.3 s or longer than 60 s.
        """
        if pcm.ndim != 1 or pcm.dtype.kind != "f":
            raise _bad_clip(f"must be float samples [n], got {pcm.dtype}{list(pcm.shape)}")
        seconds = len(pcm) / CLIP_RATE
        if not LEAST_CLIP_S <= seconds <= MOST_CLIP_S:
            raise _bad_clip(
                f"lasts {seconds:.2f} s; it must be from {LEAST_CLIP_S:g} to {MOST_CLIP_S:g} s"
            )
        samples = _sealed(pcm, np.float32)
        if not np.isfinite(samples).all():
            raise _bad_clip("holds samples that are not finite numbers")
        return cls(samples, hashlib.sha256(samples.tobytes()).hexdigest(), _speech_s(samples))

    @property
    def seconds(self) -> float:
        return len(self.pcm) / CLIP_RATE

    def frames(self, samples_per_frame: int, tail_silence_s: float = 0.0) -> int:
        """Frames of codes it makes, with a silence appended."""
        return -(-(len(self.pcm) + tail_samples(tail_silence_s)) // samples_per_frame)


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """What a Base model needs to speak in a voice: a vector, and to continue a reference, codes.

    Args:
        embedding: F32[talker hidden].
        codes: int64[code groups, frames], the reference as the codec hears it.
        transcript: what the codes say; there if and only if they are.
        tail_silence_s: the silence at the end of the codes that was not in the clip.
        model: name of the model that made it.
        clip: digest of the clip it was made of.
        warnings: doubts about the transcript, for whoever keeps the voice.

    Raises:
        InvalidRequest: of `speaker_embedding`, `reference_codes` or `reference_text`.
    """

    embedding: F32 | None
    codes: I64 | None = None
    transcript: str | None = None
    tail_silence_s: float = field(default=0.0, kw_only=True)
    model: str | None = field(default=None, kw_only=True)
    clip: str | None = field(default=None, kw_only=True)
    warnings: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if self.embedding is None and self.codes is None:
            raise InvalidRequest("a voice needs a vector, codes or both", "speaker_embedding")
        if self.embedding is not None:
            object.__setattr__(self, "embedding", _vector(self.embedding))
        if self.codes is not None:
            object.__setattr__(self, "codes", _codes(self.codes))
            if not (self.transcript or "").strip():
                raise InvalidRequest(
                    "`reference_text` must say what the codes say", "reference_text"
                )
        elif self.transcript is not None:
            raise InvalidRequest(
                "`reference_text` needs the codes it belongs to", "reference_codes"
            )

    @property
    def in_context(self) -> bool:
        """It continues a reference, and does not only sound like it."""
        return self.codes is not None

    @property
    def key(self) -> str:
        """SHA-256 in hex of what is spoken with: vector, codes and transcript."""
        parts = (
            content_key(self.embedding),
            content_key(self.codes),
            hashlib.sha256((self.transcript or "").encode()).hexdigest(),
        )
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in (self.embedding, self.codes) if array is not None)

    def vector_only(self) -> Voice:
        """The same without codes and transcript.

        Raises:
            InvalidRequest: it has no vector.
        """
        return replace(self, codes=None, transcript=None, tail_silence_s=0.0)


def content_key(array: npt.NDArray[Any] | None) -> str:
    """SHA-256 in hex of an array's shape and bytes; of None, an empty string."""
    if array is None:
        return ""
    return hashlib.sha256(str(array.shape).encode() + array.tobytes()).hexdigest()


def tail_samples(seconds: float) -> int:
    """Samples of a silence at the end of a clip.

    Raises:
        InvalidRequest: not from 0 to 2 s.
    """
    if not 0 <= seconds <= MOST_TAIL_S:
        raise InvalidRequest(
            f"`ref_tail_silence` must be from 0 to {MOST_TAIL_S:g} s, got {seconds:g}",
            "ref_tail_silence",
        )
    return round(seconds * CLIP_RATE)


def _vector(given: npt.NDArray[Any]) -> F32:
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "fiu":
        raise InvalidRequest(
            f"`speaker_embedding` must be numbers [width], got {given.dtype}{list(given.shape)}",
            "speaker_embedding",
        )
    with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused
        vector = _sealed(given, np.float32)
    if not np.isfinite(vector).all():
        raise InvalidRequest("`speaker_embedding` must hold finite numbers", "speaker_embedding")
    return vector


def _codes(given: npt.NDArray[Any]) -> I64:
    if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "iu":
        raise InvalidRequest(
            "`reference_codes` must be integers [groups, frames], got"
            f" {given.dtype}{list(given.shape)}",
            "reference_codes",
        )
    if given.min() < 0:
        raise InvalidRequest("`reference_codes` must not be negative", "reference_codes")
    return _sealed(given, np.int64)


def _sealed(array: npt.NDArray[Any], dtype: type[Any]) -> npt.NDArray[Any]:
    copy = np.array(array, dtype, order="C")
    copy.flags.writeable = False
    return copy


def _speech_s(pcm: F32) -> float:
    windows = np.pad(pcm, (0, -len(pcm) % _WINDOW)).reshape(-1, _WINDOW)
    power = np.mean(np.square(windows, dtype=np.float64), axis=1)
    # A loud window is one in twenty: a single click does not make speech quiet.
    loud = np.flatnonzero(power >= np.quantile(power, 0.95) * _BELOW_LOUD)
    gaps = np.diff(loud)
    heard = 1 + gaps[gaps <= _BRIDGED].sum() + np.count_nonzero(gaps > _BRIDGED)
    return float(heard) * _WINDOW / CLIP_RATE


def _bad_clip(problem: str) -> InvalidRequest:
    return InvalidRequest(f"`ref_audio` {problem}", "ref_audio")


__all__ = [
    "CLIP_RATE",
    "LEAST_CLIP_S",
    "MOST_CLIP_S",
    "MOST_TAIL_S",
    "TAIL_S",
    "Clip",
    "Voice",
    "content_key",
    "tail_samples",
]
