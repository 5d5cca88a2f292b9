"""Frames of codes for a batch of slots, stage by stage: talker, sampler and code predictor.

name     dtype[shape]              meaning, row = slot
hidden   dtype[slots, hidden]      the talker's last state after the final norm
logits   F32[slots, vocab]         its scores of the next codebook 0

A batch is the slots that run or, in reference mode, always all of them: at a constant width a
row's arithmetic does not depend on what the other rows hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import EngineConfig, TalkerSpec
from engine.models.code_predictor import CodePredictor
from engine.models.talker import Talker
from engine.tts.rows import Frame, TalkerRows
from engine.tts.sampling import (
    LaneSampling,
    SamplerBatch,
    penalise,
    philox_uniforms,
    repeated_ngram,
)
from engine.tts.slot import Slot, timed

_IDLE = LaneSampling(0, 0.0, 0, 1.0, 1.0, 0.0, 0, 1.0, 0, 0)


class Generator(TalkerRows):
    """Makes a frame stage by stage, as many rows in each as need it."""

    def __init__(
        self, spec: TalkerSpec, talker: Talker, predictor: CodePredictor, config: EngineConfig
    ) -> None:
        super().__init__(spec, talker, predictor, config)
        slots, width = config.slots, spec.talker.hidden
        self.hidden = torch.zeros(slots, width, device=self.device, dtype=self.dtype)
        self.logits = torch.zeros(slots, spec.vocab, device=self.device)
        self._constant_width = config.reference
        self._sampler = SamplerBatch([_IDLE], self.device)

    def frame(self, slots: Sequence[Slot]) -> Frame:
        self.feed(slots)
        self.decode(slots)
        broken = self.broken(slots)
        fine = [slot for slot in slots if slot not in broken]
        drawn = self.draw(fine) if fine else Frame([], [])
        return Frame(broken + drawn.broken, drawn.stopped)

    def decode(self, slots: Sequence[Slot]) -> None:
        """Feed each slot's staged input to the talker."""
        if not slots:
            return
        with timed(slots, "talker"):
            inputs = {slot.index: slot.next_input for slot in slots}
            batch = list(range(len(self.hidden))) if self._constant_width else list(inputs)
            rows = [index if index in inputs else None for index in batch]
            idle = torch.zeros_like(self.hidden[0])
            given = [inputs[index] if index is not None else None for index in rows]
            x = torch.stack([idle if each is None else each for each in given])
            at = self._ints([0 if index is None else self.cache.length[index] for index in rows])
            hidden = self.talker(x[:, None], self._rope.rows(at), self.cache.decode(rows))[:, 0]
            logits = self.talker.logits(hidden)
            kept = self._ints([row for row, index in enumerate(rows) if index is not None])
            into = self._ints(list(inputs))
            self.hidden[into] = hidden[kept]
            self.logits[into] = logits[kept]

    def broken(self, slots: Sequence[Slot]) -> list[Slot]:
        """The slots whose scores are not numbers."""
        finite = torch.isfinite(self.logits[self._ints([slot.index for slot in slots])]).all(-1)
        return [slot for slot, fine in zip(slots, finite.tolist(), strict=True) if not fine]

    def draw(self, slots: Sequence[Slot]) -> Frame:
        """Draw a frame for each slot and stage it there."""
        batch = self._batch(slots)
        rows = self._ints([index for index, _ in batch])
        sampler = self._sampler_for(batch)
        frames = [slot.frames if slot else 0 for _, slot in batch]
        seeds = [lane.seed for lane in sampler.lanes]
        u = torch.from_numpy(philox_uniforms(seeds, frames, self.spec.code_groups)).to(self.device)
        first = sampler.draw_first(self._scores(batch, rows, sampler), u[:, 0])
        drawn = first.tolist()
        ended = {
            slot.index
            for code, (_, slot) in zip(drawn, batch, strict=True)
            if slot and code == self.spec.codec_tokens.eos
        }
        going = [slot for slot in slots if slot.index not in ended]
        broken = self._predict(going, batch, first, u) if going else []
        return Frame(broken, [slot for slot in slots if slot.index in ended])

    def clear(self, index: int) -> None:
        super().clear(index)
        self.hidden[index] = 0
        self.logits[index] = 0

    def _predict(
        self, slots: Sequence[Slot], batch: _Batch, first: Tensor, u: Tensor
    ) -> list[Slot]:
        if not self._constant_width and len(slots) < len(batch):
            going = {slot.index for slot in slots}
            kept = self._ints([row for row, (index, _) in enumerate(batch) if index in going])
            batch = [each for each in batch if each[0] in going]
            first, u = first[kept], u[kept]
        draw = self._sampler_for(batch).frame(u[:, 1:])
        with timed(slots, "predictor"):
            codes, total = self.predictor.predict(
                self.hidden[self._ints([index for index, _ in batch])],
                self.talker.codec_embd(first),
                self._frame_cache,
                self._frame_ropes,
                draw,
            )
        fine = _finite(draw.firsts, len(batch))
        broken = []
        frames = torch.cat((first[:, None], codes), dim=1)
        for row, (index, slot) in enumerate(batch):
            if slot and slot in slots and fine[row]:
                code = int(first[row])
                self.seen[index, code] = True
                slot.stage(frames[row], code, total[row])
            elif slot and slot in slots:
                broken.append(slot)
        return broken

    def _scores(self, batch: _Batch, rows: Tensor, sampler: SamplerBatch) -> Tensor:
        scores = self.logits[rows].masked_fill(self._suppressed, float("-inf"))
        scores = penalise(scores, self.seen[rows], sampler.penalty)
        for row, (_, slot) in enumerate(batch):
            if slot is None:
                continue
            lane = slot.entry.sampling
            banned = repeated_ngram(slot.history, lane.no_repeat_ngram_size)
            if slot.frames < lane.min_new_tokens:
                banned.append(self.spec.codec_tokens.eos)
            if banned:
                scores[row, banned] = float("-inf")
        return scores

    def _batch(self, slots: Sequence[Slot]) -> _Batch:
        if not self._constant_width:
            return [(slot.index, slot) for slot in slots]
        running = {slot.index: slot for slot in slots}
        return [(index, running.get(index)) for index in range(len(self.hidden))]

    def _sampler_for(self, batch: _Batch) -> SamplerBatch:
        lanes = tuple(slot.entry.sampling if slot else _IDLE for _, slot in batch)
        if lanes != self._sampler.lanes:
            self._sampler = SamplerBatch(lanes, self.device)
        return self._sampler

    def _ints(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


def _finite(scores: Sequence[Tensor], rows: int) -> list[bool]:
    """Of each row whether all scores [rows] of it are numbers."""
    if not scores:
        return [True] * rows
    fine: list[bool] = torch.isfinite(torch.stack(list(scores))).all(0).tolist()
    return fine


# Rows of a batch: the slot index and what runs there; None is an idle row (reference mode).
_Batch = list[tuple[int, Slot | None]]

__all__ = ["Generator"]
