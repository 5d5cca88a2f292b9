"""The sliding-window transformer in front of the codec's upsampling, offline and streamed.

Mirrors Qwen3TTSTokenizerV2DecoderTransformerModel of the official
core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py: pre-norm blocks with RMSNorm, NEOX RoPE,
grouped-query attention, SwiGLU and LayerScale. A query sees `window` positions, its own included.
Attention works on [B, heads, T, head_dim].
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.codec.state import CodecState, Stateful, extend
from engine.config import DecoderSpec
from engine.models.layers import RMSNorm, Rope, rope_table, rotate


class Span(NamedTuple):
    """Where T queries and S keys (the carried past, then the new ones) stand; same in all layers.

    mask is bool[B, 1, T, S], true where a query may look; unset is bool[B, 1, S, 1], true for keys
    before the first frame. Offline B is 1 and nothing is unset.
    """

    rope: Rope
    mask: Tensor
    unset: Tensor | None


class Block(Stateful):
    """One transformer layer over [B, T, hidden]; carries the last window-1 keys and values."""

    masked = True

    def __init__(self, spec: DecoderSpec, window: int) -> None:
        super().__init__()
        self.spec = spec
        self.past = window - 1
        hidden, queries = spec.hidden, spec.heads * spec.head_dim
        keys = spec.kv_heads * spec.head_dim
        self.attn_norm = RMSNorm(hidden, spec.norm_eps)
        self.attn_q = nn.Linear(hidden, queries, bias=False)
        self.attn_k = nn.Linear(hidden, keys, bias=False)
        self.attn_v = nn.Linear(hidden, keys, bias=False)
        self.attn_output = nn.Linear(queries, hidden, bias=False)
        self.attn_scale = nn.Parameter(torch.full((hidden,), 0.01))
        self.ffn_norm = RMSNorm(hidden, spec.norm_eps)
        self.ffn_gate = nn.Linear(hidden, spec.ffn, bias=False)
        self.ffn_up = nn.Linear(hidden, spec.ffn, bias=False)
        self.ffn_down = nn.Linear(spec.ffn, hidden, bias=False)
        self.ffn_scale = nn.Parameter(torch.full((hidden,), 0.01))

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        shape = (self.spec.kv_heads, self.past, self.spec.head_dim)
        return {".k": shape, ".v": shape}

    def forward(self, x: Tensor, span: Span, state: CodecState | None = None) -> Tensor:
        x = x + self._attend(self.attn_norm(x), span, state) * self.attn_scale
        h = self.ffn_norm(x)
        h = self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))
        out: Tensor = x + h * self.ffn_scale
        return out

    def _attend(self, x: Tensor, span: Span, state: CodecState | None) -> Tensor:
        q = rotate(self._heads(self.attn_q(x)), span.rope)
        k = rotate(self._heads(self.attn_k(x)), span.rope)
        v = self._heads(self.attn_v(x))
        if state is not None:
            k = extend(state.tensors[self.path + ".k"], k, -2)
            v = extend(state.tensors[self.path + ".v"], v, -2)
        if span.unset is not None:
            # A weight of zero does not silence NaN, so unset rows must be zero themselves.
            k, v = k.masked_fill(span.unset, 0), v.masked_fill(span.unset, 0)
        grouped = self.spec.heads != self.spec.kv_heads
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=span.mask, enable_gqa=grouped)
        out: Tensor = self.attn_output(y.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.spec.head_dim).transpose(1, 2)


class Transformer(nn.Module):
    """[B, latent_dim, T] to the same shape, through layers of `spec.hidden`.

    With a state it continues from `state.position` and advances it by T.
    """

    def __init__(self, latent_dim: int, spec: DecoderSpec, window: int) -> None:
        super().__init__()
        self.spec = spec
        self.window = window
        self.input_proj = nn.Linear(latent_dim, spec.hidden)
        self.blk = nn.ModuleList(Block(spec, window) for _ in range(spec.layers))
        self.norm = RMSNorm(spec.hidden, spec.norm_eps)
        self.output_proj = nn.Linear(spec.hidden, latent_dim)

    def forward(self, x: Tensor, state: CodecState | None = None) -> Tensor:
        x = self.input_proj(x.transpose(1, 2))
        span = self._span(x, state)
        for block in self.blk:
            x = block(x, span, state)
        if state is not None:
            state.position.add_(x.shape[1])
        out: Tensor = self.output_proj(self.norm(x))
        return out.transpose(1, 2)

    def _span(self, x: Tensor, state: CodecState | None) -> Span:
        frames = torch.arange(x.shape[1], device=x.device)
        if state is None:
            return Span(self._rope(frames[None], x), self._band(frames, frames)[None, None], None)
        past = self.window - 1
        keys = torch.arange(-past, x.shape[1], device=x.device)
        unset = state.position[:, None] + keys < 0
        mask = self._band(frames, keys) & ~unset[:, None]
        rope = self._rope(state.position[:, None] + frames, x)
        return Span(rope, mask[:, None], unset[:, None, :, None])

    def _rope(self, positions: Tensor, x: Tensor) -> Rope:
        return rope_table(self.spec, positions[:, None], x.dtype)

    def _band(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = queries[:, None] - keys
        return (distance >= 0) & (distance < self.window)


__all__ = ["Block", "Transformer"]
