"""Codes to the decoder's input: sums of codebook vectors, one projection per group.

Mirrors SplitResidualVectorQuantizer.decode of the official
core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py, with codebooks already divided by usage.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.config import CodecSpec


class Codebook(nn.Module):
    """Vectors of one quantizer: `codebook` is [size, width]."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(size, width))

    def forward(self, codes: Tensor) -> Tensor:
        return F.embedding(codes, self.codebook)


class ResidualQuantizer(nn.Module):
    """Codes int64[B, K, T] of one group to [B, codebook_dim, T].

    Its codebooks are the children "0" to "K-1", as the file names them.
    """

    def __init__(self, spec: CodecSpec, quantizers: int) -> None:
        super().__init__()
        self.quantizers = quantizers
        for index in range(quantizers):
            self.add_module(str(index), Codebook(spec.codebook_size, spec.codebook_width))
        self.output_proj = nn.Conv1d(spec.codebook_width, spec.codebook_dim, 1, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        books = [self.get_submodule(str(index)) for index in range(self.quantizers)]
        total: Tensor = books[0](codes[:, 0])
        for index, book in enumerate(books[1:], start=1):
            total = total + book(codes[:, index])
        projected: Tensor = self.output_proj(total.transpose(1, 2))
        return projected


def check_codes(codes: Tensor, codebook_size: int) -> None:
    """Refuse codes no codebook holds; on an accelerator it would stall the queue, so not there.

    Raises:
        ValueError: a code is negative or not below `codebook_size`.
    """
    if codes.device.type != "cpu":
        return
    low, high = (int(bound) for bound in codes.aminmax())
    if low < 0 or high >= codebook_size:
        wrong = low if low < 0 else high
        raise ValueError(f"`codes` must lie in 0 to {codebook_size - 1}, got {wrong}")


__all__ = ["Codebook", "ResidualQuantizer", "check_codes"]
