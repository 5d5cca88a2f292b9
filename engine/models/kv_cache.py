"""Keys and values of every slot, in static tensors.

name   dtype[shape]                                        meaning
k, v   dtype[layer, slot, kv head, position, head dim]     row `slot` belongs to that slot alone
length int per slot                                        positions written; the rest is unused

`dtype` may be narrower than the queries': they are then attended in `dtype`.

Attention reads exactly the positions written, so unused rows may hold anything (NaN, in tests), and
under most systems take no memory until they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.config import DecoderSpec
from engine.models.layers import Attend, attend_causal, attend_one, attend_seen


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Where each row of a batch [B, T] stands, one row after the other: int64[B * T] each."""

    cache: KVCache
    slots: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]


class Attends(list[Attend]):
    """One `Attend` per layer, and where the rows stand, for a stack that attends by itself."""

    def __init__(self, each: Iterable[Attend], rows: Rows | None) -> None:
        super().__init__(each)
        self.rows = rows


class KVCache:
    """The cache of one decoder stack for `slots` slots of `positions` rows each."""

    def __init__(
        self,
        spec: DecoderSpec,
        slots: int,
        positions: int,
        *,
        device: torch.device,
        dtype: torch.dtype,
        nan_fill: bool = False,
    ) -> None:
        shape = (spec.layers, slots, spec.kv_heads, positions, spec.head_dim)
        self.k = torch.empty(shape, device=device, dtype=dtype)
        self.v = torch.empty(shape, device=device, dtype=dtype)
        if nan_fill:
            self.k.fill_(float("nan"))
            self.v.fill_(float("nan"))
        self.positions = positions
        self.length = [0] * slots
        self._nan_fill = nan_fill
        self._lockstep: dict[tuple[int, int, int], Attends] = {}

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def release(self, slot: int) -> None:
        """Forget a slot's rows."""
        self.length[slot] = 0
        if self._nan_fill:
            self.k[:, slot].fill_(float("nan"))
            self.v[:, slot].fill_(float("nan"))

    def prefill(self, slot: int, count: int) -> Attends:
        """One `Attend` per layer for the next `count` positions of a slot, all at once."""
        start = self.length[slot]
        end = self.length[slot] = start + count
        seen = torch.ones(count, end, dtype=torch.bool, device=self.k.device).tril(start)

        def layer(index: int) -> Attend:
            keys, values = self.k[index, slot, None, :, :end], self.v[index, slot, None, :, :end]

            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                keys[:, :, start:] = k
                values[:, :, start:] = v
                if not start:
                    return attend_causal(q, k, v)
                return attend_seen(q.to(keys.dtype), keys, values, seen).to(q.dtype)

            return attend

        return self._attends(layer, [slot] * count, range(start, end))

    def rows(self, slot: int) -> tuple[Tensor, Tensor]:
        """A copy of a slot's keys and values, each [layers, kv heads, positions, head dim]."""
        length = self.length[slot]
        return self.k[:, slot, :, :length].clone(), self.v[:, slot, :, :length].clone()

    def restore(self, slot: int, k: Tensor, v: Tensor) -> None:
        """Give an empty slot the rows of another."""
        length = self.length[slot] = k.shape[2]
        self.k[:, slot, :, :length] = k
        self.v[:, slot, :, :length] = v

    def decode(self, rows: Sequence[int | None]) -> Attends:
        """One `Attend` per layer for the next position of each row's slot, lane by lane.

        `rows` names the slot of each batch row; a row that is None is idle: nothing is written
        and its result is zero. Lanes differ in length; reading each at its own keeps a lane's
        arithmetic independent of its neighbours and never touches an unused position.
        """
        lanes = [(row, slot) for row, slot in enumerate(rows) if slot is not None]
        batch, slots, columns = (
            torch.tensor(values, device=self.k.device)
            for values in zip(*((r, s, self.length[s]) for r, s in lanes), strict=True)
        )
        for _, slot in lanes:
            self.length[slot] += 1
        reads = [(row, slot, self.length[slot]) for row, slot in lanes]

        def layer(index: int) -> Attend:
            keys, values = self.k[index], self.v[index]

            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                keys[slots, :, columns] = k[batch, :, 0].to(keys.dtype)
                values[slots, :, columns] = v[batch, :, 0].to(keys.dtype)
                out, narrow = torch.zeros_like(q), q.to(keys.dtype)
                for row, slot, n in reads:
                    out[row] = attend_one(
                        narrow[row, None], keys[slot, None, :, :n], values[slot, None, :, :n]
                    )[0]
                return out

            return attend

        if None in rows:
            return Attends(map(layer, range(len(self.k))), None)
        return self._attends(layer, [slot for _, slot in lanes], [n - 1 for _, _, n in reads])

    def ranged(self, rows: Tensor, at: Tensor, span: int) -> Attends:
        """As `decode`, of slots int64[B] at positions int64[B] below `span`, which are read from
        the device: every row reads `span` positions, and what lies behind its own weighs nothing.

        Shapes depend on B and `span` alone. `length` stays as it is.
        """
        seen = torch.arange(span, device=self.k.device) <= at[:, None]
        unset = ~seen[:, None, :, None]

        def layer(index: int) -> Attend:
            keys, values = self.k[index], self.v[index]

            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                keys[rows, :, at] = k[:, :, 0].to(keys.dtype)
                values[rows, :, at] = v[:, :, 0].to(keys.dtype)
                # A weight of zero does not silence NaN, so unset rows must be zero themselves.
                past_k, past_v = (
                    part[:, :, :span].index_select(0, rows).masked_fill(unset, 0)
                    for part in (keys, values)
                )
                narrow = q.to(keys.dtype)
                return attend_one(narrow, past_k, past_v, seen[:, None, None]).to(q.dtype)

            return attend

        return Attends(map(layer, range(len(self.k))), None)

    def lockstep(self, width: int, start: int, count: int) -> Attends:
        """One `Attend` per layer for positions start..start+count of lanes 0..width, all alike.

        The code predictor's way: its cache lives for one frame and every lane is at the same
        step. `count` is 1, or `start` is 0. What it returns is made once.
        """
        key = (width, start, count)
        if key not in self._lockstep:
            self._lockstep[key] = self._steps(width, start, count)
        return self._lockstep[key]

    def _steps(self, width: int, start: int, count: int) -> Attends:
        end = start + count

        def layer(index: int) -> Attend:
            keys, values = self.k[index, :width, :, :end], self.v[index, :width, :, :end]
            new_keys, new_values = keys[:, :, start:], values[:, :, start:]

            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                new_keys.copy_(k)
                new_values.copy_(v)
                return attend_one(q, keys, values) if count == 1 else attend_causal(q, k, v)

            return attend

        slots = np.repeat(np.arange(width), count)
        return self._attends(layer, slots, np.tile(np.arange(start, end), width))

    def _attends(self, layer: Callable[[int], Attend], slots: Any, positions: Any) -> Attends:
        rows = Rows(self, np.array(slots, np.int64), np.array(positions, np.int64))
        if rows.positions.max(initial=0) >= self.positions:
            raise IndexError(f"position {rows.positions.max()} of a cache of {self.positions}")
        return Attends(map(layer, range(len(self.k))), rows)


__all__ = ["Attends", "KVCache", "Rows"]
