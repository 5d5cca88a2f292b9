"""The log-mel spectrogram the speaker encoder listens to.

Mirrors `mel_spectrogram` of the official core/models/modeling_qwen3_tts.py, with the filterbank of
`librosa.filters.mel` (Slaney's mel scale and area normalisation) computed here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.pieces import Steps, run_through

SAMPLE_RATE = 24_000
WINDOW = 1024
HOP = 256
HIGHEST_HZ = 12_000.0
POWER_FLOOR = 1e-9
MEL_FLOOR = 1e-5
FRAMES = 500  # in one piece of `log_mel_steps`

# Slaney's scale: linear up to 1000 Hz, then 27 steps for every factor of 6.4.
_HZ_PER_MEL = 200.0 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _HZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27

_F64 = npt.NDArray[np.float64]


def log_mel(pcm: Tensor, mels: int) -> Tensor:
    """Log-mel frames F32[mels, frames] of F32[samples] at 24 kHz, on the device of `pcm`.

    There are (samples - 256) // 256 + 1 frames; at least 385 samples are needed.
    """
    return run_through(log_mel_steps(pcm, mels))


def log_mel_steps(pcm: Tensor, mels: int) -> Steps[Tensor]:
    """The same in pieces."""
    padding = (WINDOW - HOP) // 2
    padded = F.pad(pcm[None], (padding, padding), mode="reflect")
    window = torch.hann_window(WINDOW, device=pcm.device)
    filters = torch.from_numpy(mel_filters(mels).astype(np.float32)).to(pcm.device)
    parts = []
    for start in range(0, padded.shape[1] - WINDOW + 1, FRAMES * HOP):
        part = padded[:, start : start + (FRAMES - 1) * HOP + WINDOW]
        spectrum = torch.stft(part, WINDOW, HOP, window=window, center=False, return_complex=True)
        magnitude = torch.sqrt(torch.view_as_real(spectrum[0]).square().sum(-1) + POWER_FLOOR)
        parts.append(torch.log((filters @ magnitude).clamp(min=MEL_FLOOR)))
        yield
    return torch.cat(parts, dim=1)


@cache
def mel_filters(mels: int) -> _F64:
    """Triangular filters F64[mels, WINDOW // 2 + 1] from 0 to 12 kHz, each of area 1 in Hz."""
    frequencies = np.linspace(0.0, SAMPLE_RATE / 2, WINDOW // 2 + 1)
    corners = _hz(np.linspace(0.0, float(_mel(HIGHEST_HZ)), mels + 2))
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    filters: _F64 = triangles * (2.0 / (corners[2:] - corners[:-2]))[:, None]
    filters.flags.writeable = False  # shared by every caller
    return filters


def _mel(hz: float) -> Any:
    return hz / _HZ_PER_MEL if hz < _BREAK_HZ else _BREAK_MEL + np.log(hz / _BREAK_HZ) / _LOG_STEP


def _hz(mel: _F64) -> _F64:
    above = _BREAK_HZ * np.exp(_LOG_STEP * (mel - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel * _HZ_PER_MEL, above)


__all__ = ["HOP", "SAMPLE_RATE", "WINDOW", "log_mel", "log_mel_steps", "mel_filters"]
