"""Faster or slower speech at the same pitch, as a stream, through ffmpeg's `atempo`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import av
import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


class Stretcher:
    """Changes the tempo of mono sound.

    What comes out is as long as what went in divided by `speed`, to the sample.

    Args:
        speed: 0.25 to 4; above 1 is faster.
        sample_rate: of what comes in and goes out.
    """

    def __init__(self, speed: float, sample_rate: int) -> None:
        self._speed = speed
        self._rate = sample_rate
        self._graph = _graph(speed, sample_rate)
        self._taken = 0
        self._given = 0

    def write(self, pcm: F32) -> F32:
        """F32[samples] in, those that are ready out."""
        if not pcm.size:
            return pcm
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), format="flt", layout="mono")
        frame.sample_rate = self._rate
        frame.time_base = Fraction(1, self._rate)
        frame.pts = self._taken
        self._taken += pcm.size
        self._graph.push(frame)
        return self._pull()

    def finish(self) -> F32:
        """The rest."""
        missing = max(0, round(self._taken / self._speed) - self._given)
        # The filter works in windows and may leave out part of the last one: silence behind the
        # sound pushes all of it out.
        pushed = self.write(np.zeros(self._rate // 4, np.float32))
        self._graph.push(None)
        rest = np.concatenate([pushed, self._pull()])[:missing]
        return np.pad(rest, (0, missing - rest.size))

    def _pull(self) -> F32:
        pieces = [np.zeros(0, np.float32)]
        while True:
            try:
                frame: Any = self._graph.pull()
            except (av.BlockingIOError, av.EOFError):
                break
            pieces.append(frame.to_ndarray()[0])
        pcm = np.concatenate(pieces)
        self._given += pcm.size
        return pcm


def _graph(speed: float, sample_rate: int) -> av.filter.Graph:
    # One filter blends windows well for 0.5 to 2; beyond that two share the work.
    steps = max(1, math.ceil(abs(math.log2(speed)) - 1e-9))
    graph = av.filter.Graph()
    nodes = [
        graph.add_abuffer(
            sample_rate=sample_rate, format="flt", layout="mono", time_base=Fraction(1, sample_rate)
        ),
        *(graph.add("atempo", f"{speed ** (1 / steps):.9f}") for _ in range(steps)),
        graph.add("abuffersink"),
    ]
    graph.link_nodes(*nodes).configure()
    return graph


__all__ = ["Stretcher"]
