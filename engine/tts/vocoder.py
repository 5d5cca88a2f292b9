"""Sound from staged frames: the codec decoder over one lane per slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.codec.chunks import Chunks
from engine.codec.decoder import Decodes, decode_lanes
from engine.codec.state import CodecState
from engine.config import EngineConfig
from engine.models.graphs import Recorder
from engine.pieces import Steps
from engine.tts.slot import Slot, timed

# What a lane is primed with in one piece: about as long as a frame may take.
PRIMED_FRAMES = 4
# What is decoded at once, of all lanes together: more saves no time and takes memory.
_MOST_FRAMES = 16

Pcm = npt.NDArray[np.float32]


class Vocoder:
    """Owns the codec's side of every slot. A slot's lane is its index."""

    def __init__(self, decoder: Decodes, config: EngineConfig) -> None:
        self.device = decoder.device
        self._decoder = decoder
        self._ramp = config.ramp
        self._alone = config.reference
        self._nan_fill = config.nan_fill
        self._state = decoder.fresh_state(config.slots, nan_fill=config.nan_fill)
        self._chunks = Chunks(decoder, self._state)

    def record(self, recorder: Recorder) -> None:
        """Record all flushes there can be; before the first slot is taken."""
        most = self._state.lanes
        counts = range(1, max(self._ramp) + 1)
        self._chunks.record(
            recorder,
            [(n, count) for count in counts for n in range(1, min(most, _at_once(count)) + 1)],
        )

    def primed(self, codes: npt.NDArray[np.int64]) -> Steps[CodecState]:
        """A lane that has heard reference codes int64[frames, groups]; their sound is discarded."""
        lane = self._decoder.fresh_state(1, nan_fill=self._nan_fill)
        frames = torch.from_numpy(codes).to(self.device).T[None]
        for part in torch.split(frames, PRIMED_FRAMES, dim=2):
            decode_lanes(self._decoder, lane, self._lanes([0]), part)
            yield
        return lane

    def resume(self, index: int, lane: CodecState) -> None:
        """Make a slot's lane go on from where another one is."""
        self._state.update(self._lanes([index]), lane)

    def flush(self, slots: Sequence[Slot], now: float, soon: float) -> Iterator[tuple[Slot, Pcm]]:
        """Decode what is due, with whoever has as many frames; F32 samples per slot.

        The batch takes as many frames as the due slot that has fewest. In reference mode every
        lane is decoded alone, on its own ramp, whatever the time is.

        Args:
            now, soon: a listener who would run dry between these times gets what there is.
        """
        soon = now if self._alone else soon
        while due := [slot for slot in slots if slot.due(self._ramp, now, soon)]:
            if self._alone:
                due = due[:1]
            count = min(len(slot.pending) for slot in due)
            lanes = due if self._alone else [s for s in slots if len(s.pending) >= count]
            most = _at_once(count)
            for first in range(0, len(lanes), most):
                part = lanes[first : first + most]
                yield from zip(part, self._decode(part, count), strict=True)

    def clear(self, index: int) -> None:
        """Reset a lane."""
        self._state.reset(self._lanes([index]))

    @property
    def nbytes(self) -> int:
        """Bytes of weights and carried state."""
        return self._state.nbytes + self._decoder.nbytes

    @property
    def frames_held(self) -> int:
        """Frames all lanes together have consumed since they were reset."""
        return int(self._state.position.sum().item())

    def _decode(self, slots: Sequence[Slot], count: int) -> Pcm:
        with timed(slots, "codec"):
            codes = torch.stack([slot.take(count) for slot in slots]).to(self.device)
            lanes = self._lanes([slot.index for slot in slots])
            sound = self._chunks.decode(lanes, codes)
            pcm: Pcm = sound.float().cpu().numpy()
        return pcm

    def _lanes(self, indices: Sequence[int]) -> Tensor:
        return torch.tensor(indices, dtype=torch.int64, device=self.device)


def _at_once(count: int) -> int:
    """Lanes that are decoded at once with so many frames each."""
    return max(1, _MOST_FRAMES // count)


__all__ = ["Vocoder"]
