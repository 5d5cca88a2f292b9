"""What a client got, decoded as a player would."""

from __future__ import annotations

import io

import av

TEXT = "Hello there, how are you today?"


def seconds(body: bytes) -> float:
    """How long a file plays; anything ffmpeg cannot read raises."""
    with av.open(io.BytesIO(body)) as container:
        container.streams.audio[0].codec_context.options = {"err_detect": "explode"}
        frames = list(container.decode(audio=0))
    return sum(frame.samples for frame in frames) / frames[0].sample_rate


def audible(body: bytes, least_s: float = 0.2) -> None:
    """The body is sound, in one piece, and not empty."""
    assert seconds(body) >= least_s, f"{seconds(body):.2f} s of sound"


def samples(body: bytes, least_s: float = 0.2, rate: int = 24_000) -> None:
    """The body is whole 16-bit samples, enough of them, and not silence."""
    assert len(body) % 2 == 0 and len(body) / 2 / rate >= least_s, f"{len(body)} bytes"
    assert any(body)


__all__ = ["TEXT", "audible", "samples", "seconds"]
