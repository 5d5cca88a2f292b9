"""Guards that end an utterance which no longer says anything: loops of codes, and silence.

Both are plain arithmetic over one slot's own output, so they cannot depend on the batch. The
definitions are Framecast's own; the C++ port shows only the names and defaults of the loop rule.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_BLOCK_S = 0.02


class LoopGuard:
    """Tells when codebook 0 repeats with a fixed period.

    For some period p of at most `max_period` frames: c0[i] == c0[i - p] for each of the last
    `window` frames, and at least `repeats` periods fit into those frames.

    Args:
        window: frames that must repeat; 0 turns the guard off.
        max_period: longest period looked for, frames.
        repeats: periods the window must hold, so periods over window / repeats never count.
    """

    def __init__(self, window: int, max_period: int, repeats: int) -> None:
        self._window = window
        longest = min(max_period, window // max(repeats, 1))
        self._periods = range(1, longest + 1)
        self._runs = [0] * len(self._periods)
        self._recent: list[int] = []

    def push(self, c0: int) -> bool:
        """Take the next frame's codebook 0; True when the codes repeat."""
        recent = self._recent
        for index, period in enumerate(self._periods):
            repeats = len(recent) >= period and recent[-period] == c0
            self._runs[index] = self._runs[index] + 1 if repeats else 0
        recent.append(c0)
        del recent[: -len(self._periods) or None]
        return any(run >= self._window for run in self._runs)


class SilenceGuard:
    """Tells when nothing was audible for too long after speech was heard.

    The sound is cut into blocks of 20 ms counted from its first sample, whatever pieces it
    arrives in. A block is silent when its RMS lies below `dbfs` (full scale 1.0 is 0 dBFS); the
    guard speaks up once `seconds` of silent blocks in a row follow a block that was not. Until
    the first audible block it stays quiet: a long pause before speech is not its matter.

    Args:
        sample_rate: samples per second.
        seconds: silence that ends the utterance, rounded up to whole blocks; 0 turns it off.
        dbfs: level under which a block is silent, dB relative to full scale.
    """

    def __init__(self, sample_rate: int, seconds: float, dbfs: float) -> None:
        self._block = max(1, round(sample_rate * _BLOCK_S))
        self._limit = math.ceil(seconds * sample_rate / self._block)
        self._power = 10.0 ** (dbfs / 10.0)
        self._rest = np.empty(0, dtype=np.float32)
        self._heard = False
        self._silent_blocks = 0

    def push(self, pcm: npt.NDArray[np.float32]) -> bool:
        """Take the next sound, F32[samples] of -1 to 1; True when the silence is too long.

        A verdict given inside `pcm` stands even if the sound comes back later in it.
        """
        if self._limit == 0:
            return False
        sound = np.concatenate((self._rest, pcm))
        whole = len(sound) - len(sound) % self._block
        self._rest = sound[whole:].copy()
        blocks = sound[:whole].reshape(-1, self._block)
        # F64, so that the mean of a block is the same wherever the block was cut out.
        powers = np.mean(np.square(blocks, dtype=np.float64), axis=1)
        ended = False
        for power in powers:
            ended |= self._take(bool(power < self._power))
        return ended

    def _take(self, silent: bool) -> bool:
        self._heard = self._heard or not silent
        self._silent_blocks = self._silent_blocks + 1 if silent and self._heard else 0
        return self._silent_blocks >= self._limit


__all__ = ["LoopGuard", "SilenceGuard"]
