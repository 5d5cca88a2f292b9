"""Sample rate conversion of a stream, through soxr."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import soxr

F32 = npt.NDArray[np.float32]


class Resampler:
    """Mono sound from one rate to another, whatever the pieces it comes in."""

    def __init__(self, from_rate: int, to_rate: int) -> None:
        self._stream = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")

    def write(self, pcm: F32) -> F32:
        """F32[samples] at the first rate in, those that are ready at the second out."""
        return cast(F32, self._stream.resample_chunk(pcm))

    def finish(self) -> F32:
        """What the filter still holds."""
        return cast(F32, self._stream.resample_chunk(np.zeros(0, np.float32), last=True))


__all__ = ["Resampler"]
