"""The 44-byte header of a PCM WAV file, the one shape every player reads."""

from __future__ import annotations

import struct

UNKNOWN_SIZE = 0xFFFFFFFF


def wav_header(sample_rate: int, data_bytes: int | None) -> bytes:
    """Header for mono 16-bit PCM; `data_bytes` None marks a stream whose end is not known.

    Also a clip too long for the format's 32-bit sizes gets the sizes of a stream.
    """
    known = data_bytes is not None and data_bytes + 36 < UNKNOWN_SIZE
    data_size = data_bytes if data_bytes is not None and known else UNKNOWN_SIZE
    riff_size = data_size + 36 if known else UNKNOWN_SIZE
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", riff_size, b"WAVE",
        b"fmt ", 16, 1, 1, sample_rate, sample_rate * 2, 2, 16,
        b"data", data_size,
    )  # fmt: skip


__all__ = ["UNKNOWN_SIZE", "wav_header"]
