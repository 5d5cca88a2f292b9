"""Weights as the products of `engine.native.product` read them, and one product by itself.

    name     dtype[shape]                                meaning
    values   uint8[N/16, K/32, 8, 16, 4] of 8 bits       weight + 128: 4 neighbours of 16 rows
             uint8[N/16, K/32, 4, 16, 4] of 4 bits       weight + 8: quad q low, quad q + 4 high
    scales   F16[N/16, K/32, 16]                         one per row and block of 32

Weights that a file stores as Q8_0 or Q4_0 keep their values exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.kernels import Kernel
from engine.native.jobs import PRODUCT, Job
from engine.native.product import RESULTS_NBYTES, ROWS_AT_ONCE, inputs_nbytes
from engine.native.team import Team
from engine.native.vector import BLOCK, ROWS


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights [N, K], N padded with zeros to whole sixteens."""

    values: Tensor
    scales: Tensor
    bits: int
    results: int

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scales.nbytes

    def words(self) -> tuple[int, int, int]:
        """How compiled code finds it."""
        return self.values.data_ptr(), self.scales.data_ptr(), self.bits


def pack(weight: Tensor, bits: int) -> Packed:
    """Pack F32[N, K], K a multiple of 32, as `bits` (8 or 4)."""
    weight = F.pad(weight.float(), (0, 0, 0, -len(weight) % ROWS))
    results, width = weight.shape
    blocks = weight.view(results, -1, BLOCK)
    most = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    # The largest value of a block becomes -8, or 127: so the files' own types are kept.
    scale = (most / -8 if bits == 4 else most.abs() / 127).half()
    factor = torch.where(scale == 0, 0, 1 / scale.float())
    middle = 8 if bits == 4 else 128
    whole = (blocks * factor).round_().add_(middle).clamp_(0 if bits == 4 else 1, 2 * middle - 1)
    quads = whole.to(torch.uint8).view(results // ROWS, ROWS, width // BLOCK, BLOCK // 4, 4)
    values = quads.permute(0, 2, 3, 1, 4)
    if bits == 4:
        half = BLOCK // 8
        values = values[:, :, :half] | (values[:, :, half:] << 4)
    scales = scale.view(results // ROWS, ROWS, width // BLOCK).permute(0, 2, 1)
    return Packed(values.contiguous(), scales.contiguous(), bits, results)


class Native(Kernel):
    """A product by the team's own compiled code: weights of 8 or 4 bits with a scale per block,
    inputs int8 with a scale per block."""

    def __init__(self, weight: Tensor, bias: Tensor | None, team: Team, bits: int = 8) -> None:
        super().__init__()
        self.bias = bias
        self._team = team
        self._packed = pack(weight, bits)
        self._results, width = weight.shape
        self._inputs = torch.empty(inputs_nbytes(width), dtype=torch.uint8)
        self._made = torch.empty(team.size * RESULTS_NBYTES, dtype=torch.uint8)
        spaces = self._inputs.data_ptr(), self._made.data_ptr()
        words = (*self._packed.words(), width, self._packed.results, *spaces)
        self.words = torch.tensor(words, dtype=torch.int64)
        self.packed_nbytes = self._packed.nbytes

    @property
    def padded(self) -> bool:
        """The weights have rows of zeros after the last one."""
        return self._packed.results != self._results

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).float().contiguous()
        out = torch.empty(len(rows), self._packed.results)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part, made = (each[start : start + ROWS_AT_ONCE] for each in (rows, out))
            self._team.run(
                PRODUCT,
                {
                    Job.WHAT: self.words.data_ptr(),
                    Job.COUNT: len(part),
                    Job.INPUTS: part.data_ptr(),
                    Job.OUTPUTS: made.data_ptr(),
                },
            )
        if self.padded:
            out = out[:, : self._results]
        if self.bias is not None:
            out = out.add_(self.bias)
        return out.reshape(*x.shape[:-1], self._results)


__all__ = ["Native", "Packed", "pack"]
