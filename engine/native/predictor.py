"""All acoustic codes of a frame in one call: the fast twin of `CodePredictor.predict`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.models.kv_cache import KVCache
from engine.native.frame import LANES_AT_ONCE, PRODUCT_WORDS, Parts
from engine.native.jobs import FRAME, Job
from engine.native.packed import Native
from engine.native.product import ROWS_AT_ONCE, inputs_nbytes
from engine.native.stack import NativeStack
from engine.native.team import Team


class NativeFrame:
    """Steps of a predictor whose stack, heads and projection (if it has one) are native.

    Args:
        norm: F32[hidden], of the final norm.
        tables: one F32[vocab, talker hidden] per step.
    """

    def __init__(
        self,
        stack: NativeStack,
        heads: Sequence[Native],
        tables: Sequence[Tensor],
        norm: Tensor,
        projection: Native | None,
        *,
        team: Team,
    ) -> None:
        self._stack, self._team = stack, team
        self._kept = heads, tables, norm, projection
        vocab, width = tables[0].shape
        hidden = len(norm)
        self._heads = torch.stack([head.words[:PRODUCT_WORDS] for head in heads])
        self._tables = torch.tensor([table.data_ptr() for table in tables], dtype=torch.int64)
        self._floats = [
            torch.empty(rows, columns)
            for rows, columns in (
                (ROWS_AT_ONCE, width),
                (ROWS_AT_ONCE, hidden),
                (LANES_AT_ONCE, vocab),
            )
        ]
        self._ranked = torch.empty(LANES_AT_ONCE, vocab, dtype=torch.int64)
        self._places = torch.empty(2, ROWS_AT_ONCE, dtype=torch.int64)
        own = 2 * inputs_nbytes(max(width, hidden))
        own += -own % 64
        self._own = torch.empty(team.size * own, dtype=torch.uint8)
        bias = None if projection is None else projection.bias
        words = {
            Parts.STACK: stack.words.ctypes.data,
            Parts.STEPS: len(heads),
            Parts.VOCAB: vocab,
            Parts.WIDTH: width,
            Parts.HEADS: self._heads.data_ptr(),
            Parts.TABLES: self._tables.data_ptr(),
            Parts.NORM: norm.data_ptr(),
            Parts.PROJECTION: 0 if projection is None else projection.words.data_ptr(),
            Parts.BIAS: 0 if bias is None else bias.data_ptr(),
            Parts.GIVEN: self._floats[0].data_ptr(),
            Parts.INPUTS: self._floats[1].data_ptr(),
            Parts.LOGITS: self._floats[2].data_ptr(),
            Parts.RANKED: self._ranked.data_ptr(),
            Parts.PLACES: self._places.data_ptr(),
            Parts.OWN: self._own.data_ptr(),
            Parts.OWN_BYTES: own,
        }
        self._words = torch.tensor([words[part] for part in Parts], dtype=torch.int64)
        self._steps = len(heads)

    def predict(
        self, hidden: Tensor, first: Tensor, cache: KVCache, draws: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """As `CodePredictor.predict`; `draws` are what `Drawing.lanes` gives."""
        lanes = len(hidden)
        if lanes > cache.k.shape[1] or self._steps >= cache.positions:
            raise IndexError(f"{lanes} lanes of {self._steps} steps do not fit the cache")
        self._stack.use(cache)
        hidden, first = hidden.contiguous(), first.contiguous()
        codes = torch.empty(lanes, self._steps, dtype=torch.int64)
        total = torch.empty_like(first)
        asked = torch.tensor([draw.data_ptr() for draw in draws], dtype=torch.int64)
        for start in range(0, lanes, LANES_AT_ONCE):
            self._team.run(
                FRAME,
                {
                    Job.WHAT: self._words.data_ptr(),
                    Job.COUNT: min(LANES_AT_ONCE, lanes - start),
                    Job.INPUTS: hidden[start:].data_ptr(),
                    Job.FIRST: first[start:].data_ptr(),
                    Job.OUTPUTS: codes[start:].data_ptr(),
                    Job.TOTALS: total[start:].data_ptr(),
                    Job.LANE: start,
                    Job.DRAWS: asked.data_ptr(),
                },
            )
        return codes, total


def native_frame(
    stack: object,
    heads: Sequence[object],
    tables: Sequence[Tensor],
    norm: Tensor,
    given: object,
    *,
    team: Team | None,
) -> NativeFrame | None:
    """The steps in compiled code, if all parts of the predictor are."""
    if team is None or not isinstance(stack, NativeStack):
        return None
    native = [head for head in heads if isinstance(head, Native)]
    projection = given if isinstance(given, Native) else None
    if len(native) < len(heads) or (
        projection is None and not isinstance(given, torch.nn.Identity)
    ):
        return None
    if any(head.padded or head.bias is not None for head in native):
        return None
    return NativeFrame(stack, native, tables, norm, projection, team=team)


__all__ = ["NativeFrame", "native_frame"]
