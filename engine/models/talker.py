"""The talker: a Qwen3 decoder over the sum of a text stream and a codec stream.

Mirrors `Qwen3TTSTalkerForConditionalGeneration` without its generation loop. State-dict names are
the GGUF names after "talker.".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.config import TalkerSpec
from engine.models.fused import stack_rope
from engine.models.layers import Attend, DecoderLayer, RMSNorm, Rope, RopeTable, Stack


class TextProjection(nn.Module):
    """Text embedding width -> talker width: two layers with SiLU between them."""

    def __init__(self, text_hidden: int, hidden: int) -> None:
        super().__init__()
        self.fc1: nn.Module = nn.Linear(text_hidden, text_hidden)
        self.fc2: nn.Module = nn.Linear(text_hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.fc2(F.silu(self.fc1(x)))
        return projected


class Talker(nn.Module):
    """Embeddings, decoder stack and the head of codebook 0."""

    def __init__(self, spec: TalkerSpec) -> None:
        super().__init__()
        self.spec = spec.talker
        hidden = spec.talker.hidden
        self.text_embd: nn.Module = nn.Embedding(spec.text_vocab, spec.text_hidden)
        self.text_proj = TextProjection(spec.text_hidden, hidden)
        self.codec_embd = nn.Embedding(spec.vocab, hidden)
        self.blk: nn.Module = Stack(DecoderLayer(spec.talker) for _ in range(spec.talker.layers))
        self.output_norm = RMSNorm(hidden, spec.talker.norm_eps)
        self.codec_head: nn.Module = nn.Linear(hidden, spec.vocab, bias=False)

    @property
    def device(self) -> torch.device:
        return self.output_norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of activations."""
        return self.output_norm.weight.dtype

    def rope(self, positions: int) -> RopeTable:
        """What the blocks' positions are turned by."""
        return stack_rope(self.blk, self.spec, positions, self.output_norm.weight)

    @property
    def packed(self) -> bool:
        """The blocks are those of fast kernels."""
        return bool(self.blk.packed)

    def embed_text(self, ids: Tensor) -> Tensor:
        """Text ids [...] -> projected embeddings [..., hidden]."""
        projected: Tensor = self.text_proj(self.text_embd(ids))
        return projected

    def forward(self, x: Tensor, rope: Rope, attends: Sequence[Attend]) -> Tensor:
        """Inputs [B, T, hidden] -> hidden states after the final norm [B, T, hidden]."""
        normed: Tensor = self.output_norm(self.blk(x, rope, attends))
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., hidden] -> F32 scores of codebook 0 [..., vocab]."""
        scores: Tensor = self.codec_head(hidden)
        return scores.float()


__all__ = ["Talker", "TextProjection"]
