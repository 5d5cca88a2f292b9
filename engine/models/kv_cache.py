"""Keys and values of every slot, in static tensors.

name   dtype[shape]                                        meaning
k, v   dtype[layer, slot, kv head, position, head dim]     row `slot` belongs to that slot alone
length int per slot                                        positions written; the rest is unused

Attention reads exactly the positions written, so unused rows may hold NaN (and do, in tests).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import DecoderSpec
from engine.models.layers import Attend, attend_causal, attend_one


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
        fill = float("nan") if nan_fill else 0.0
        self.k = torch.full(shape, fill, device=device, dtype=dtype)
        self.v = torch.full(shape, fill, device=device, dtype=dtype)
        self.positions = positions
        self.length = [0] * slots
        self._nan_fill = nan_fill

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def release(self, slot: int) -> None:
        """Forget a slot's rows."""
        self.length[slot] = 0
        if self._nan_fill:
            self.k[:, slot].fill_(float("nan"))
            self.v[:, slot].fill_(float("nan"))

    def prefill(self, slot: int, count: int) -> list[Attend]:
        """One `Attend` per layer for the first `count` positions of an empty slot."""
        self.length[slot] = count

        def layer(index: int) -> Attend:
            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                self.k[index, slot, :, :count] = k[0]
                self.v[index, slot, :, :count] = v[0]
                return attend_causal(q, k, v)

            return attend

        return [layer(index) for index in range(len(self.k))]

    def decode(self, rows: Sequence[int | None]) -> list[Attend]:
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
                keys[slots, :, columns] = k[batch, :, 0]
                values[slots, :, columns] = v[batch, :, 0]
                out = torch.zeros_like(q)
                for row, slot, n in reads:
                    out[row] = attend_one(
                        q[row, None], keys[slot, None, :, :n], values[slot, None, :, :n]
                    )[0]
                return out

            return attend

        return [layer(index) for index in range(len(self.k))]

    def lockstep(self, width: int, start: int, count: int) -> list[Attend]:
        """One `Attend` per layer for positions start..start+count of lanes 0..width, all alike.

        The code predictor's way: its cache lives for one frame and every lane is at the same
        step. `count` is 1, or `start` is 0.
        """
        end = start + count

        def layer(index: int) -> Attend:
            keys, values = self.k[index, :width, :, :end], self.v[index, :width, :, :end]

            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                keys[:, :, start:] = k
                values[:, :, start:] = v
                return attend_one(q, keys, values) if count == 1 else attend_causal(q, k, v)

            return attend

        return [layer(index) for index in range(len(self.k))]


__all__ = ["KVCache"]
