"""Decoding on lanes of one state, where batches that come often are recorded: the codec's side of
captured frames. A batch is so many lanes with so many frames each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from engine.codec.decoder import Decodes, decode_lanes
from engine.codec.state import CodecState
from engine.models.graphs import Recorder


class Chunks:
    """A decoder and the state it goes on from; `decode` is `decode_lanes` of both."""

    def __init__(self, decoder: Decodes, state: CodecState) -> None:
        self._decoder = decoder
        self._state = state
        self._recorded: dict[tuple[int, int], _Batch] = {}

    @torch.inference_mode()
    def record(self, recorder: Recorder, shapes: Iterable[tuple[int, int]]) -> None:
        """Record batches of (lanes, frames). Leaves every lane as a fresh one."""
        for lanes, frames in shapes:
            batch = _Batch(self._decoder, self._state, lanes, frames)
            batch.run = recorder.record(batch.decode)
            self._recorded[lanes, frames] = batch
        self._state.reset(torch.arange(self._state.lanes, device=self._decoder.device))

    def decode(self, lanes: Tensor, codes: Tensor) -> Tensor:
        """Decode codes int64[n, K, T] on the lanes int64[n]: samples [n, T*samples_per_frame]."""
        batch = self._recorded.get((codes.shape[0], codes.shape[2]))
        if batch is None:
            return decode_lanes(self._decoder, self._state, lanes, codes)
        batch.lanes.copy_(lanes)
        batch.codes.copy_(codes)
        batch.run()
        return batch.sound.clone()


class _Batch:
    run: Callable[[], None]

    def __init__(self, decoder: Decodes, state: CodecState, lanes: int, frames: int) -> None:
        spec, device = decoder.spec, decoder.device
        self._decoder, self._state = decoder, state
        self.lanes = torch.arange(lanes, device=device)
        self.codes = torch.zeros(lanes, spec.quantizers, frames, dtype=torch.int64, device=device)
        self.sound = torch.zeros(lanes, frames * spec.samples_per_frame, device=device)

    def decode(self) -> None:
        self.sound.copy_(decode_lanes(self._decoder, self._state, self.lanes, self.codes))


__all__ = ["Chunks"]
