"""A decoder stack in one call: the fast twin of a row of `DecoderLayer`s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from engine.config import DecoderSpec
from engine.models.kv_cache import KVCache, Rows
from engine.models.layers import Attend, DecoderLayer, Rope, rope_angles
from engine.native.decoder import LAYER_WORDS, Layer, Part
from engine.native.jobs import STACK, Job
from engine.native.packed import Packed, pack
from engine.native.product import ROWS_AT_ONCE, inputs_nbytes
from engine.native.team import Team
from engine.native.vector import BLOCK, LANES, ROWS


@dataclass(frozen=True, slots=True)
class NativeLayer:
    """The packed products and the norms of one layer."""

    qkv: Packed
    output: Packed
    gate_up: Packed
    down: Packed
    attn_norm: Tensor
    ffn_norm: Tensor
    head_norm: Tensor

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in self.__dataclass_fields__)

    def words(self) -> list[int]:
        words = [0] * LAYER_WORDS
        for place, packed in (
            (Layer.QKV, self.qkv),
            (Layer.OUTPUT, self.output),
            (Layer.GATE_UP, self.gate_up),
            (Layer.DOWN, self.down),
        ):
            words[place : place + 3] = packed.words()
        words[Layer.ATTN_NORM] = self.attn_norm.data_ptr()
        words[Layer.FFN_NORM] = self.ffn_norm.data_ptr()
        words[Layer.HEAD_NORM] = self.head_norm.data_ptr()
        return words


def pack_layer(layer: DecoderLayer, bits: dict[str, int]) -> NativeLayer:
    """Pack a plain F32 layer; `bits` of "qkv", "output", "gate_up" and "down"."""
    gate, up = (
        linear.weight.view(-1, 1, BLOCK, linear.weight.shape[1])
        for linear in (layer.ffn_gate, layer.ffn_up)
    )
    qkv = torch.cat((layer.attn_q.weight, layer.attn_k.weight, layer.attn_v.weight))
    norms = torch.cat((layer.attn_q_norm.weight, layer.attn_k_norm.weight))
    return NativeLayer(
        pack(qkv, bits["qkv"]),
        pack(layer.attn_output.weight, bits["output"]),
        pack(torch.cat((gate, up), dim=1).flatten(0, 2), bits["gate_up"]),
        pack(layer.ffn_down.weight, bits["down"]),
        *(
            each.detach().float().contiguous()
            for each in (layer.attn_norm.weight, layer.ffn_norm.weight, norms)
        ),
    )


class NativeStack(nn.Module):
    """[B, T, hidden] to the same, for rows whose place in a `KVCache` is known."""

    packed = True

    def __init__(self, spec: DecoderSpec, layers: Sequence[NativeLayer], team: Team) -> None:
        super().__init__()
        self._spec = spec
        self._layers = layers
        self._team = team
        self._table = torch.tensor([layer.words() for layer in layers], dtype=torch.int64)
        self.packed_nbytes = sum(layer.nbytes for layer in layers)
        attended = spec.heads * spec.head_dim
        wide = attended + 2 * spec.kv_heads * spec.head_dim
        shared = 4 * ROWS_AT_ONCE * wide
        shared += inputs_nbytes(attended) + inputs_nbytes(spec.ffn)
        self._shared = torch.empty(shared, dtype=torch.uint8)
        self.words = np.zeros(len(Part), np.int64)
        self._set(
            {
                Part.LAYERS: len(layers),
                Part.HIDDEN: spec.hidden,
                Part.HEADS: spec.heads,
                Part.KV_HEADS: spec.kv_heads,
                Part.HEAD_DIM: spec.head_dim,
                Part.FFN: spec.ffn,
                Part.EPS: int(np.float32(spec.norm_eps).view(np.int32)),
                Part.TABLE: self._table.data_ptr(),
                Part.SHARED: self._shared.data_ptr(),
            }
        )
        self._cache: KVCache | None = None
        self._make_room(1)

    def forward(self, x: Tensor, _: Rope, attends: Sequence[Attend]) -> Tensor:
        """As a row of layers would; `attends` are a cache's."""
        rows: Rows | None = getattr(attends, "rows", None)
        if rows is None:
            raise TypeError("a stack in compiled code attends through a KVCache only")
        self.use(rows.cache)
        out = x.float().flatten(0, 1).contiguous()
        if out.data_ptr() == x.data_ptr():
            out = out.clone()
        for start in range(0, len(out), ROWS_AT_ONCE):
            part = out[start : start + ROWS_AT_ONCE]
            self._team.run(
                STACK,
                {
                    Job.WHAT: self.words.ctypes.data,
                    Job.COUNT: len(part),
                    Job.INPUTS: part.data_ptr(),
                    Job.SLOTS: rows.slots[start:].ctypes.data,
                    Job.POSITIONS: rows.positions[start:].ctypes.data,
                },
            )
        return out.view(x.shape)

    def use(self, cache: KVCache) -> None:
        """Attend to what this cache holds, and store there."""
        if cache is self._cache:
            return
        k = cache.k
        if cache.positions > self._most:
            self._make_room(cache.positions)
        self._set(
            {
                Part.KEYS: k.data_ptr(),
                Part.VALUES: cache.v.data_ptr(),
                Part.KV_BITS: 8 * k.element_size(),
                Part.LAYER_STEP: k.stride(0),
                Part.SLOT_STEP: k.stride(1),
                Part.HEAD_STEP: k.stride(2),
            }
        )
        self._cache = cache

    def _make_room(self, positions: int) -> None:
        """For attention over so many positions."""
        spec, self._most = self._spec, positions
        angles = rope_angles(spec, torch.arange(positions))
        self._turns = angles.cos().contiguous(), angles.sin().contiguous()
        group = spec.heads // spec.kv_heads
        scratch = max(
            spec.hidden, (group + 1) * spec.head_dim + positions, 4 * LANES * ROWS + BLOCK
        )
        own = 4 * scratch + inputs_nbytes(spec.hidden)
        own += -own % 64
        self._own = torch.empty(self._team.size * own, dtype=torch.uint8)
        self._set(
            {
                Part.COSINES: self._turns[0].data_ptr(),
                Part.SINES: self._turns[1].data_ptr(),
                Part.MOST_POSITIONS: positions,
                Part.OWN: self._own.data_ptr(),
                Part.OWN_BYTES: own,
            }
        )

    def _set(self, words: dict[Part, int]) -> None:
        for part, word in words.items():
            self.words[part] = word


__all__ = ["NativeLayer", "NativeStack", "pack_layer"]
