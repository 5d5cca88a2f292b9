"""The 44-byte header of a WAV file, the one shape every player reads."""

from __future__ import annotations

import struct

UNKNOWN_SIZE = 0xFFFFFFFF
PCM = 1


def wav_header(sample_rate: int, data_bytes: int | None, tag: int = PCM) -> bytes:
    """Header for mono sound; `data_bytes` None marks a stream whose end is not known.

    Also a clip too long for the format's 32-bit sizes gets the sizes of a stream.

    Args:
        tag: the format: 1 is 16-bit PCM, 6 A-law, 7 mu-law (one byte per sample).
    """
    known = data_bytes is not None and data_bytes + 36 < UNKNOWN_SIZE
    data_size = data_bytes if data_bytes is not None and known else UNKNOWN_SIZE
    riff_size = data_size + 36 if known else UNKNOWN_SIZE
    width = 2 if tag == PCM else 1
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", riff_size, b"WAVE",
        b"fmt ", 16, tag, 1, sample_rate, sample_rate * width, width, 8 * width,
        b"data", data_size,
    )  # fmt: skip


__all__ = ["UNKNOWN_SIZE", "wav_header"]
