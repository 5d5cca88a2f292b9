"""Decoder blocks with packed weights: the fast twin of `DecoderLayer`.

Queries, keys and values are one product, gate and up another; queries and keys are normed and
turned together. Head dimensions are reordered so that the two values RoPE turns are neighbours,
which makes it one complex product; scores do not depend on their order, so that a cache filled
here serves this layer only.

Activations are F32. A block is filled by `fuse`, which needs typical inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.config import DecoderSpec
from engine.models.kernels import Kernel, refine
from engine.models.layers import (
    Attend,
    DecoderLayer,
    Rope,
    RopeTable,
    Stack,
    attend_causal,
    rope_angles,
)

# (names of the plain linears, their weights one above the other, typical inputs) -> their product
Pack = Callable[[tuple[str, ...], Tensor, Tensor], Kernel]

PRODUCTS = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "output": ("attn_output",),
    "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}


class TurnTable(RopeTable):
    """RoPE as complex factors [positions, head dim / 2]."""

    def __init__(self, spec: DecoderSpec, positions: int, device: torch.device) -> None:
        angles = rope_angles(spec, torch.arange(positions, device=device))
        self._turns = torch.polar(torch.ones_like(angles), angles)

    def span(self, start: int, end: int) -> Rope:
        return (self._turns[start:end, None],)

    def rows(self, at: Tensor) -> Rope:
        return (self._turns[at][:, None, None],)


class FusedLayer(nn.Module):
    """[B, T, hidden] to the same, like `DecoderLayer`; its rope is `TurnTable`'s."""

    def __init__(self, layer: DecoderLayer, spec: DecoderSpec, products: dict[str, Kernel]) -> None:
        super().__init__()
        order = pair_order(spec.head_dim)
        self.eps, self.head_dim = spec.norm_eps, spec.head_dim
        self.heads, self.turned = spec.heads, spec.heads + spec.kv_heads
        self.ffn = spec.ffn
        self.attn_norm, self.ffn_norm = layer.attn_norm, layer.ffn_norm
        norms = (
            layer.attn_q_norm.weight[order].expand(spec.heads, -1),
            layer.attn_k_norm.weight[order].expand(spec.kv_heads, -1),
        )
        self.head_norm = nn.Parameter(torch.cat(norms), requires_grad=False)
        self.qkv, self.output = products["qkv"], products["output"]
        self.gate_up, self.down = products["gate_up"], products["down"]

    def forward(self, x: Tensor, rope: Rope, attend: Attend) -> Tensor:
        heads = _split(self.qkv(self.attn_norm(x)), self.head_dim)
        turned = self._turn(heads[..., : self.turned, :], rope).transpose(1, 2)
        value = heads[..., self.turned :, :].transpose(1, 2)
        attended = attend(turned[:, : self.heads], turned[:, self.heads :], value)
        x = x + self.output(attended.transpose(1, 2).flatten(-2))
        wide = self.gate_up(self.ffn_norm(x))
        fed = F.silu(wide[..., : self.ffn]).mul_(wide[..., self.ffn :])
        out: Tensor = self.down(fed)
        return out.add_(x)

    def _turn(self, heads: Tensor, rope: Rope) -> Tensor:
        normed = F.rms_norm(heads, (self.head_dim,), None, self.eps).mul_(self.head_norm)
        pairs = torch.view_as_complex(_split(normed, 2))
        return torch.view_as_real(pairs * rope[0]).flatten(-2)


def _split(x: Tensor, width: int) -> Tensor:
    """[..., n * width] as [..., n, width]."""
    return x.view(*x.shape[:-1], -1, width)


def stack_rope(blocks: nn.Module, spec: DecoderSpec, positions: int, like: Tensor) -> RopeTable:
    """The table that a stack's blocks want, on the device and in the dtype of `like`."""
    if isinstance(blocks, Stack) and isinstance(blocks[0], FusedLayer):
        return TurnTable(spec, positions, like.device)
    return RopeTable(spec, positions, like.device, like.dtype)


def pair_order(head_dim: int) -> Tensor:
    """Where each value of a head comes from when i and i + head_dim / 2 become neighbours."""
    return torch.arange(head_dim).view(2, -1).T.flatten()


def fuse(
    layer: DecoderLayer, spec: DecoderSpec, x: Tensor, rope: Rope, pack: Pack
) -> tuple[FusedLayer, Tensor]:
    """Pack a plain F32 layer.

    Args:
        x: typical inputs [B, T, hidden], whole sequences.
        rope: the plain layer's, for T positions.

    Returns:
        the packed layer and the plain one's outputs, which are the next one's inputs.
    """
    inputs: dict[str, Tensor] = {}
    hooks = [
        layer.get_submodule(names[0]).register_forward_pre_hook(
            lambda _, given, kept=product: inputs.__setitem__(kept, given[0])
        )
        for product, names in PRODUCTS.items()
    ]
    out: Tensor = layer(x, rope, attend_causal)
    for hook in hooks:
        hook.remove()
    products = {
        product: pack(names, _weights(layer, spec, names), inputs[product])
        for product, names in PRODUCTS.items()
    }
    for product in ("output", "down"):  # they are added to what all later layers read
        refine(products[product])
    return FusedLayer(layer, spec, products), out


def _weights(layer: DecoderLayer, spec: DecoderSpec, names: tuple[str, ...]) -> Tensor:
    return torch.cat([_reordered(name, layer, spec) for name in names])


def _reordered(name: str, layer: DecoderLayer, spec: DecoderSpec) -> Tensor:
    weight: Tensor = layer.get_parameter(f"{name}.weight")
    if name not in {"attn_q", "attn_k"}:
        return weight
    heads = weight.view(-1, spec.head_dim, weight.shape[1])
    return heads[:, pair_order(spec.head_dim)].flatten(0, 1)


__all__ = ["PRODUCTS", "FusedLayer", "Pack", "TurnTable", "fuse", "pair_order", "stack_rope"]
