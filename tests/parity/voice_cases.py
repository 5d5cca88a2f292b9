"""What the two encoders are compared on: Base checkpoints and clips made by a formula.

`references/voices_<case>.npz` holds the official results (see `make_voice_references.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints import Case, Codec, Stack
from tests.parity.cases import REFERENCES

RATE = 24_000
# Samples: 0.4 s, a whole number of frames, 1 s, 3.137 s, one sample past a frame, and over 10 s,
# which is where a window of 250 positions would end.
LENGTHS = (9_600, 11_520, 24_000, 75_288, 38_401, 264_007)
# Clips at other rates go through the package's resampler.
OTHER_RATES = ((44_100, 52_923), (16_000, 20_011), (48_000, 60_000), (8_000, 9_999))

SMALL = Stack(hidden=32, ffn=48, layers=1, heads=2, kv_heads=2, head_dim=16)

CASES: tuple[Case, ...] = (
    Case(
        name="narrow",
        task="base",
        talker=SMALL,
        predictor=SMALL,
        codec=Codec(codebook_dim=8),
        codebook_size=256,
    ),
    Case(
        name="sixteen_groups",
        task="base",
        talker=replace(SMALL, hidden=48),
        predictor=SMALL,
        codec=Codec(codebook_dim=12, encoder_hidden=48, encoder_filters=8),
        code_groups=16,
        codebook_size=512,
    ),
)


def reference_path(case: Case) -> Path:
    return REFERENCES / f"voices_{case.name}.npz"


def clip(samples: int, rate: int = RATE) -> np.ndarray[Any, np.dtype[np.float32]]:
    """F32[samples]: a voice-like buzz whose pitch, loudness and noise jump; the same everywhere."""
    random = np.random.RandomState(samples)
    segments = samples * 12 // rate + 1
    each = -(-samples // segments)
    pitch = np.repeat(np.exp(random.uniform(np.log(80), np.log(1500), segments)), each)[:samples]
    loudness = np.repeat(random.uniform(0.0, 0.6, segments) ** 2 / 0.6, each)[:samples]
    noisiness = np.repeat(random.uniform(0.0, 0.5, segments), each)[:samples]
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    buzz = sum(np.sin(n * phase) / n for n in (1, 2, 3, 5))
    noise = random.standard_normal(samples)
    return (loudness * ((1 - noisiness) * buzz + noisiness * noise)).astype(np.float32)
