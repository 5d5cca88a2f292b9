"""The fixed part of the decoder: a harmonic-and-noise vocoder written into its weights.

Each code 4 stands for a train of pulses and each code 5 for a stretch of hiss, both as tables of
MDCT coefficients (64 for each 64 samples). The tables are the taps of the one upsampling stage;
codes reach it as one-hot rows and random vectors carried along the residual stream. What training
adds is 64 + 64 gains per 64 samples. They multiply the coefficients in a snake with a small angle,
which is x + x^2: snake(g + c) - snake(g - c) = 4 c (g + 1/2). The last block is the inverse MDCT.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from teacher import FRAME, NOISES, PITCHES, phases
from torch import Tensor, nn

from engine.codec.decoder import CodecDecoder

BINS = 64
HOPS = FRAME // BINS
VECTOR = 24  # width of a hiss
STEADY = PITCHES + VECTOR  # the channel of a constant, against which the norm is steady
CARRIED = STEADY + 1
LEVEL = 16.0  # of the constant
SPREAD = 6.0  # harmonics over which a period is passed through once
SMALL = 0.02  # of the tables against what is learned
STILL = 60.0  # of constants that keep the norms inside the upsampling stages steady
ANGLE, FLAT = -5.0, 20.0  # logarithms: a snake with exp(FLAT) for beta is the identity


def basis() -> Tensor:
    """The MDCT with a sine window [BINS, 2 * BINS]; its rows are the synthesis taps as well."""
    n, k = torch.arange(2 * BINS) + 0.5, torch.arange(BINS)[:, None] + 0.5
    window = torch.sin(math.pi * n / (2 * BINS))
    return window * torch.cos(math.pi / BINS * (n + BINS / 2) * k) * math.sqrt(2 / BINS)


def train_of(passed: np.ndarray) -> np.ndarray:
    """Band-limited pulses for the periods passed at each sample, spread out to be less peaky.

    Harmonic k lags by a quadratic phase, the same at any pitch, so that frames fit together.
    """
    count = int(11000 / (24000 * np.gradient(passed).max()))
    k = np.arange(1, count + 1)[:, None]
    turn = 2 * np.pi * np.modf(passed)[0]
    wave: np.ndarray = np.cos(k * turn - np.pi * k * k / SPREAD).sum(0)
    return wave


def coefficients(wave: np.ndarray) -> Tensor:
    """MDCT of one frame that goes on as it began: [HOPS, BINS]."""
    lasting = torch.from_numpy(np.concatenate([wave, wave[:BINS]]).astype(np.float32))
    return lasting.unfold(0, 2 * BINS, BINS) @ basis().T


def pulse_table() -> Tensor:
    """[PITCHES, HOPS, BINS]."""
    waves = [train_of(phases(np.array([code + 1]))[0]) for code in range(PITCHES)]
    return torch.stack([coefficients(wave) for wave in waves])


def hiss_table() -> tuple[Tensor, Tensor]:
    """Vectors [NOISES, VECTOR] and what they span [VECTOR, HOPS, BINS], of unit variance."""
    seeded = torch.Generator().manual_seed(7)
    vectors = torch.randn(NOISES, VECTOR, generator=seeded)
    vectors /= vectors.norm(dim=1, keepdim=True)
    return vectors, torch.randn(VECTOR, HOPS, BINS, generator=seeded)


class Fixed:
    """Entries of parameters that training leaves alone."""

    def __init__(self) -> None:
        self.entries: list[tuple[nn.Parameter, Tensor, Tensor]] = []

    def set(self, parameter: nn.Parameter, where: object, value: Tensor | float) -> None:
        mask, held = torch.zeros_like(parameter, dtype=torch.bool), torch.zeros_like(parameter)
        mask[where], held[where] = True, value  # type: ignore[index]
        self.entries.append((parameter, mask, held))
        self._put(parameter, mask, held)

    @torch.no_grad()
    def restore(self) -> None:
        for entry in self.entries:
            self._put(*entry)

    def still(self) -> None:
        """Take away their gradient, so that what looks at whole matrices is not misled."""
        for parameter, mask, _ in self.entries:
            if parameter.grad is not None:
                parameter.grad[mask] = 0

    @torch.no_grad()
    def _put(self, parameter: nn.Parameter, mask: Tensor, held: Tensor) -> None:
        parameter.copy_(torch.where(mask, held, parameter))


def carry(decoder: CodecDecoder) -> Fixed:
    """Lead pulses and hiss from the codes to the first wave convolution."""
    fixed, eye, c = Fixed(), torch.eye(CARRIED), slice(0, CARRIED)
    pitch, hiss = decoder.vq_rest.get_submodule("3"), decoder.vq_rest.get_submodule("4")
    books = [decoder.vq_first.get_submodule("0")]
    books += [decoder.vq_rest.get_submodule(str(i)) for i in range(5)]
    for book in books:
        fixed.set(book.codebook, (slice(None), c), 0.0)
    one_hot = torch.zeros(len(pitch.codebook), CARRIED)
    one_hot[1 : PITCHES + 1, :PITCHES] = torch.eye(PITCHES)
    fixed.set(pitch.codebook, (slice(None), c), one_hot)
    rows = torch.zeros(len(hiss.codebook), CARRIED)
    rows[:, PITCHES:STEADY] = hiss_table()[0].repeat(len(rows) // NOISES, 1)
    rows[:, STEADY] = LEVEL
    fixed.set(hiss.codebook, (slice(None), c), rows)
    fixed.set(books[0].codebook, slice(None), 0.0)
    fixed.set(decoder.vq_first.output_proj.weight, c, 0.0)
    _pass(fixed, decoder.vq_rest.output_proj.weight, eye[..., None])
    kernel = torch.zeros(CARRIED, CARRIED, 3)
    kernel[..., -1] = eye
    _pass(fixed, decoder.pre_conv.weight, kernel)
    tfm = decoder.pre_tfm
    for linear in (tfm.input_proj, tfm.output_proj):
        _pass(fixed, linear.weight, eye)
    for bias in (decoder.pre_conv.bias, tfm.input_proj.bias, tfm.output_proj.bias):
        fixed.set(bias, c, 0.0)
    norms = [tfm.norm]
    for block in tfm.blk:
        fixed.set(block.attn_output.weight, c, 0.0)
        fixed.set(block.ffn_down.weight, c, 0.0)
        fixed.set(block.attn_norm.weight, STEADY, 0.0)
        fixed.set(block.ffn_norm.weight, STEADY, 0.0)
        norms += [block.attn_norm, block.ffn_norm]
    for norm in norms:
        with torch.no_grad():
            norm.weight.mul_(steady_gain(len(norm.weight)))
    fixed.set(tfm.norm.weight, c, steady_gain(len(tfm.norm.weight)))
    _lift(fixed, decoder)
    return fixed


def steady_gain(width: int) -> float:
    return LEVEL / math.sqrt(width)


def _pass(fixed: Fixed, weight: nn.Parameter, kernel: Tensor) -> None:
    """The carried rows go through as they are, and none of the others reads the constant."""
    fixed.set(weight, (slice(CARRIED, None), STEADY), 0.0)
    fixed.set(weight, slice(0, CARRIED), 0.0)
    fixed.set(weight, (slice(0, CARRIED), slice(0, CARRIED)), kernel)


def _lift(fixed: Fixed, decoder: CodecDecoder) -> None:
    """The upsampling stages: tables in the first, nothing in the second."""
    both = slice(0, 2 * BINS)
    first, second = decoder.upsample
    fixed.set(first.conv.weight, (slice(None), both), 0.0)
    pulses = (SMALL * pulse_table() / _height()).transpose(1, 2)
    fixed.set(first.conv.weight, (slice(0, PITCHES), slice(0, BINS)), pulses)
    hiss = (SMALL * hiss_table()[1]).transpose(1, 2)
    fixed.set(first.conv.weight, (slice(PITCHES, STEADY), slice(BINS, 2 * BINS)), hiss)
    fixed.set(second.conv.weight, (slice(None), both), 0.0)
    fixed.set(second.conv.weight, both, 0.0)
    fixed.set(second.conv.weight, (both, both), torch.eye(2 * BINS)[..., None])
    for stage in (first, second):
        fixed.set(stage.conv.bias, both, 0.0)
        fixed.set(stage.dwconv.weight, both, 0.0)
        fixed.set(stage.dwconv.bias, both, STILL * (-1.0) ** torch.arange(2 * BINS))
        fixed.set(stage.gamma, both, 0.0)


def _height() -> float:
    """Pulses are scaled to the loudness of hiss, about one per coefficient."""
    return float(pulse_table().square().mean().sqrt())


PULSE = _height()


@torch.no_grad()
def finish(decoder: CodecDecoder, weight: Tensor, bias: Tensor, scale: Tensor) -> None:
    """Write everything behind the upsampling stages.

    Args:
        weight, bias: the learned convolution to gains, [2 * BINS, C - 2 * BINS, 7] and [2 * BINS].
        scale: what a gain of one means for each coefficient, [2 * BINS].
    """
    stage, *blocks, last_snake, last = decoder.dec
    for part in (*blocks, last_snake, last):
        for name, value in part.named_parameters():
            value.fill_(FLAT if name.endswith("beta") else 0)
    both, small = 2 * BINS, 0.25
    stage.conv.weight.zero_()
    for sign, at in ((1, 0), (-1, both)):
        rows = slice(at, at + both)
        stage.conv.weight[rows, both:] = weight
        stage.conv.bias[rows] = bias - 0.5
        stage.conv.weight[rows, :both, -1] = sign * small / SMALL * torch.eye(both)
    blocks[0].snake.alpha.fill_(ANGLE)
    blocks[0].snake.beta.fill_(2 * ANGLE)
    for half in (0, BINS):
        part = torch.diag(scale[half : half + BINS]) / (4 * small)
        blocks[0].conv_t.weight[half : half + BINS, :BINS, 0] = part
        blocks[0].conv_t.weight[both + half : both + half + BINS, :BINS, 0] = -part
    blocks[1].conv_t.weight[:BINS, :BINS, 0] = torch.eye(BINS)
    blocks[2].conv_t.weight[:, 0] = basis()
    last.conv.weight[0, 0, -1] = 1
