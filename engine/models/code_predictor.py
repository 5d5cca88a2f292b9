"""The code predictor: the acoustic codes of one frame, one after the other, all lanes in lockstep.

Mirrors `Qwen3TTSTalkerCodePredictorModelForConditionalGeneration`. Its cache lives for one frame:
position 0 is the talker's hidden state, position 1 the embedding of code 0, then one step per
code. State-dict names are the GGUF names after "code_pred.".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from engine.config import TalkerSpec
from engine.models.fused import stack_rope
from engine.models.kv_cache import KVCache
from engine.models.layers import Attend, DecoderLayer, RMSNorm, Rope, RopeTable, Stack

if TYPE_CHECKING:
    from engine.native.predictor import NativeFrame

# (index of the acoustic code from 0, F32 logits [B, vocab]) -> codes int64[B]
Draw = Callable[[int, Tensor], Tensor]


@runtime_checkable
class Drawing(Protocol):
    """A `Draw` that can be done elsewhere, by what it does per lane."""

    def __call__(self, step: int, scores: Tensor, /) -> Tensor: ...

    def lanes(self) -> Sequence[Tensor]:
        """Of each lane: F32 divisor of scores, int64 top k (0 keeps all), F32 top p, int64 greedy
        (0 or 1), F32[steps] random numbers."""
        ...


class CodePredictor(nn.Module):
    """Embeddings and heads of codebooks 1.., and the small decoder between them."""

    def __init__(self, spec: TalkerSpec) -> None:
        super().__init__()
        self.spec = spec.predictor
        width, acoustic = spec.predictor.hidden, spec.code_groups - 1
        # The embeddings have the talker's width: their sum is the talker's next input.
        self.codec_embd = nn.ModuleList(
            nn.Embedding(spec.predictor_vocab, spec.talker.hidden) for _ in range(acoustic)
        )
        if spec.predictor_projection:
            self.mtp_proj: nn.Module = nn.Linear(spec.talker.hidden, width)
        else:
            self.mtp_proj = nn.Identity()
        self.fast: NativeFrame | None = None
        self.blk: nn.Module = Stack(
            DecoderLayer(spec.predictor) for _ in range(spec.predictor.layers)
        )
        self.output_norm = RMSNorm(width, spec.predictor.norm_eps)
        self.lm_head = nn.ModuleList(
            nn.Linear(width, spec.predictor_vocab, bias=False) for _ in range(acoustic)
        )

    def rope(self, positions: int) -> RopeTable:
        """What the blocks' positions are turned by."""
        return stack_rope(self.blk, self.spec, positions, self.output_norm.weight)

    def forward(self, x: Tensor, rope: Rope, attends: Sequence[Attend]) -> Tensor:
        """Inputs [B, T, talker hidden] -> hidden states after the final norm [B, T, width]."""
        normed: Tensor = self.output_norm(self.blk(self.mtp_proj(x), rope, attends))
        return normed

    def predict(
        self, hidden: Tensor, first: Tensor, cache: KVCache, ropes: Sequence[Rope], draw: Draw
    ) -> tuple[Tensor, Tensor]:
        """Draw a frame's acoustic codes.

        Args:
            hidden: the talker's hidden states after the final norm [B, talker hidden].
            first: embeddings of code 0 [B, talker hidden].
            cache: at least B lanes of `code_groups` positions; overwritten.
            ropes: one per step: of the first two positions, then of one more each.
            draw: the sampler.

        Returns:
            codes int64[B, code_groups - 1] and the sum of all embeddings of the frame, code 0
            included [B, talker hidden].
        """
        if self.fast is not None and isinstance(draw, Drawing):
            return self.fast.predict(hidden, first, cache, draw.lanes())
        width = len(hidden)
        total = first
        codes: list[Tensor] = []
        x, start = torch.stack((hidden, first), dim=1), 0
        steps = zip(self.codec_embd, self.lm_head, ropes, strict=True)
        for step, (embed, head, rope) in enumerate(steps):
            end = start + x.shape[1]
            out = self(x, rope, cache.lockstep(width, start, end - start))[:, -1]
            code = draw(step, head(out).float())
            embedded = embed(code)
            codes.append(code)
            total = total + embedded
            x, start = embedded[:, None], end
        return torch.stack(codes, dim=1), total

    def embed(self, codes: Tensor) -> Tensor:
        """The summed embeddings of given acoustic codes [..., code_groups - 1] -> [..., hidden]."""
        parts = [embed(codes[..., i]) for i, embed in enumerate(self.codec_embd)]
        return torch.stack(parts).sum(dim=0)


__all__ = ["CodePredictor", "Draw"]
