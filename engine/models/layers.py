"""Qwen3 decoder blocks, shared by the talker and the code predictor.

Mirrors `Qwen3TTSTalkerDecoderLayer` and `Qwen3TTSDecoderLayer` of the official package. Attribute
names are GGUF tensor names, so a module's state dict is its part of the file. A block knows no
cache: it is handed an `Attend`, which stores what must be stored and returns the attended values.
Training hands it `attend_causal`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.config import DecoderSpec

# (queries [B, heads, T, hd], keys and values [B, kv heads, T, hd]) -> [B, heads, T, hd]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
# What a layer's positions are turned by, from its `RopeTable`; the plain layer's are cosines and
# sines, each [T, hd] or [B, 1, T, hd]
Rope = tuple[Tensor, ...]


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rope_table(spec: DecoderSpec, positions: Tensor, dtype: torch.dtype) -> Rope:
    """Cosines and sines [..., head dim] at `positions` [...] of NEOX rotary embedding.

    Computed in F32. The talker's three mrope sections always carry equal positions, which makes
    it this.
    """
    angles = rope_angles(spec, positions)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rope_angles(spec: DecoderSpec, positions: Tensor) -> Tensor:
    """What each pair of a head is turned by at `positions` [...]: F32[..., head dim / 2]."""
    steps = torch.arange(0, spec.head_dim, 2, device=positions.device, dtype=torch.float32)
    frequencies = 1.0 / spec.rope_theta ** (steps / spec.head_dim)
    return positions[..., None].float() * frequencies


class RopeTable:
    """The rope of every position, made once."""

    def __init__(
        self, spec: DecoderSpec, positions: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._rope = rope_table(spec, torch.arange(positions, device=device), dtype)

    def span(self, start: int, end: int) -> Rope:
        """Of consecutive positions, the same in every row."""
        return self._rope[0][start:end], self._rope[1][start:end]

    def rows(self, at: Tensor) -> Rope:
        """Of one position per row, int64[B]."""
        return self._rope[0][at][:, None, None], self._rope[1][at][:, None, None]


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Apply rotary embedding to x [..., T, head dim]."""
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def attend_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Plain causal attention over one whole sequence, without a cache."""
    grouped = q.shape[1] != k.shape[1]
    out: Tensor = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    return out


def attend_seen(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Attention of q [B, heads, T, hd] to the keys [B, kv heads, S, hd] that `seen`, bool[T, S],
    lets each query see."""
    grouped = q.shape[1] != k.shape[1]
    out: Tensor = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=grouped)
    return out


def attend_one(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None = None) -> Tensor:
    """One query per head against all given keys, or those of them that `seen`, bool[B, 1, 1, L],
    lets each row see.

    The query heads that share a key head become the query positions of that head, so that
    grouped keys are neither repeated nor masked. q [B, heads, 1, hd], k and v [B, kv heads, L, hd].
    """
    batch, heads, _, width = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(batch, kv_heads, heads // kv_heads, width)
    attended: Tensor = F.scaled_dot_product_attention(grouped, k, v, attn_mask=seen)
    return attended.reshape(q.shape)


class DecoderLayer(nn.Module):
    """Pre-norm attention with per-head RMSNorm on Q and K before RoPE, then SwiGLU."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.head_dim = spec.head_dim
        queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.attn_norm = RMSNorm(spec.hidden, spec.norm_eps)
        self.attn_q = nn.Linear(spec.hidden, queries, bias=False)
        self.attn_k = nn.Linear(spec.hidden, keys, bias=False)
        self.attn_v = nn.Linear(spec.hidden, keys, bias=False)
        self.attn_q_norm = RMSNorm(spec.head_dim, spec.norm_eps)
        self.attn_k_norm = RMSNorm(spec.head_dim, spec.norm_eps)
        self.attn_output = nn.Linear(queries, spec.hidden, bias=False)
        self.ffn_norm = RMSNorm(spec.hidden, spec.norm_eps)
        self.ffn_gate = nn.Linear(spec.hidden, spec.ffn, bias=False)
        self.ffn_up = nn.Linear(spec.hidden, spec.ffn, bias=False)
        self.ffn_down = nn.Linear(spec.ffn, spec.hidden, bias=False)

    def forward(self, x: Tensor, rope: Rope, attend: Attend) -> Tensor:
        """x [B, T, hidden] -> [B, T, hidden]."""
        h = self.attn_norm(x)
        q = rotate(self.attn_q_norm(self._heads(self.attn_q(h))), rope)
        k = rotate(self.attn_k_norm(self._heads(self.attn_k(h))), rope)
        v = self._heads(self.attn_v(h))
        attended: Tensor = self.attn_output(attend(q, k, v).transpose(1, 2).flatten(-2))
        x = x + attended
        h = self.ffn_norm(x)
        fed: Tensor = self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))
        return x + fed

    def _heads(self, x: Tensor) -> Tensor:
        batch, count, _ = x.shape
        return x.view(batch, count, -1, self.head_dim).transpose(1, 2)


class Stack(nn.ModuleList):
    """Layers one after the other."""

    @property
    def packed(self) -> bool:
        """The layers are those of fast kernels."""
        return not isinstance(self[0], DecoderLayer)

    def forward(self, x: Tensor, rope: Rope, attends: Sequence[Attend]) -> Tensor:
        """x [B, T, hidden] -> [B, T, hidden]."""
        for layer, attend in zip(self, attends, strict=True):
            x = layer(x, rope, attend)
        return x


__all__ = [
    "Attend",
    "DecoderLayer",
    "RMSNorm",
    "Rope",
    "RopeTable",
    "Stack",
    "attend_causal",
    "attend_one",
    "attend_seen",
    "rope_angles",
    "rope_table",
    "rotate",
]
