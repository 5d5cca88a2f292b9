"""Loudness brought to a target while the sound is made, without waiting for more of it.

Loudness is that of ITU-R BS.1770: the K-weighted power of the speech so far, silence left out.
The gain follows it slowly, is bounded, and gives way to a peak that would clip.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

HOP_S = 0.02
# Blocks of 400 ms, one every 100 ms, as BS.1770 wants them; shorter at the beginning.
BLOCK_HOPS = 20
BLOCK_EVERY_HOPS = 5
SILENCE_LUFS = -60.0
# What lies this far below the speech so far is a pause.
PAUSE_LU = 10.0
MOST_GAIN_DB = 15.0
RISE_DB_PER_S = 12.0
PEAK = 0.89  # -1 dBFS


class Leveller:
    """Gives mono sound a loudness, piece by piece; a gain of 0 dB to begin with.

    The result does not depend on the pieces the sound comes in.

    Args:
        target_lufs: the loudness wanted.
        sample_rate: of what comes in and goes out.
    """

    def __init__(self, target_lufs: float, sample_rate: int) -> None:
        self._target = target_lufs
        self._hop = round(HOP_S * sample_rate)
        self._weights = _k_weights(self._hop, sample_rate)
        self._rest = np.zeros(0, np.float32)
        self._recent: deque[float] = deque(maxlen=BLOCK_HOPS)
        self._count = 0
        self._blocks: list[float] = []
        self._wanted_db = 0.0
        self._gain_db = 0.0
        self._last = 1.0

    def write(self, pcm: F32) -> F32:
        """F32[samples] in, whole hops of 20 ms out."""
        pcm = np.concatenate([self._rest, pcm])
        whole = pcm.size // self._hop * self._hop
        self._rest = pcm[whole:]
        hops = [self._level(hop) for hop in pcm[:whole].reshape(-1, self._hop)]
        return np.concatenate([np.zeros(0, np.float32), *hops])

    def finish(self) -> F32:
        """The last samples, less than a hop."""
        rest, self._rest = self._rest, np.zeros(0, np.float32)
        return rest * np.float32(self._held_back(rest, self._last))

    def _level(self, hop: F32) -> F32:
        self._listen(hop)
        step = RISE_DB_PER_S * HOP_S
        self._gain_db += min(max(self._wanted_db - self._gain_db, -step), step)
        gain = self._held_back(hop, 10 ** (self._gain_db / 20))
        # Down at once where a peak would clip, otherwise along a line: no step to be heard.
        start = min(self._last, self._held_back(hop, self._last))
        self._last = gain
        return hop * np.linspace(start, gain, hop.size, dtype=np.float32)

    def _listen(self, hop: F32) -> None:
        self._recent.append(float(self._weights @ np.abs(np.fft.rfft(hop)) ** 2))
        self._count += 1
        if self._count % BLOCK_EVERY_HOPS:
            return
        block = sum(self._recent) / len(self._recent)
        if _lufs(block) > SILENCE_LUFS:
            self._blocks.append(block)
            wanted = self._target - _integrated(self._blocks)
            self._wanted_db = min(max(wanted, -MOST_GAIN_DB), MOST_GAIN_DB)

    @staticmethod
    def _held_back(hop: F32, gain: float) -> float:
        peak = float(np.max(np.abs(hop), initial=0.0))
        return min(gain, max(PEAK / peak, min(gain, 1.0))) if peak else gain


def _integrated(blocks: list[float]) -> float:
    powers = np.array(blocks)
    floor = _lufs(float(powers.mean())) - PAUSE_LU
    return _lufs(float(powers[10 * np.log10(powers) - 0.691 > floor].mean()))


def _lufs(power: float) -> float:
    return -0.691 + 10 * float(np.log10(max(power, 1e-12)))


def _k_weights(samples: int, sample_rate: int) -> npt.NDArray[np.float64]:
    # Mean square of a K-weighted hop = weights @ |rfft|**2, by Parseval. The two analogue
    # filters that BS.1770 gives the coefficients of: a shelf of 4 dB at 1.7 kHz, a high-pass
    # at 38 Hz.
    s = 2j * np.pi * np.fft.rfftfreq(samples, 1 / sample_rate)
    w1, q1, high, band = 2 * np.pi * 1681.97, 0.7072, 10 ** (4.0 / 20), 1.2587
    shelf = (high * s**2 + band * w1 / q1 * s + w1**2) / (s**2 + w1 / q1 * s + w1**2)
    w2, q2 = 2 * np.pi * 38.135, 0.5003
    cut = s**2 / (s**2 + w2 / q2 * s + w2**2)
    twice = np.full(s.size, 2.0)
    twice[0] = 1.0
    if samples % 2 == 0:
        twice[-1] = 1.0
    weights: npt.NDArray[np.float64] = twice * np.abs(shelf * cut) ** 2 / samples**2
    return weights


__all__ = ["Leveller"]
