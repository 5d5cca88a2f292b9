"""Whole frames as functions over static tensors, one per batch width and span of positions.

For devices where a launch costs more than what it launches: talker, code predictor and all draws
of a frame are one replay, after which the host copies `out` and nothing else. The frame moves all
that is its own on by itself; the host says whose turn it is, and what has come of a text.

name      dtype[shape]                          meaning, row = slot
given     dtype[slots, hidden]                  what the talker hears next, but for its text
text      dtype[slots, positions + 1, hidden]   what goes with it at frame 0, 1, ...: nothing, then
                                                the overlay, then the pad
length    int64[slots]                          positions written
made      int64[slots]                          frames made
seed      int64[slots]
numbers   F64[slots, numbers]                   sampling, see `SamplerBatch.of`
banned    bool[slots, vocab]                    codes of codebook 0 that may not come next
turn      int64[slots]                          the slots of this frame: its batch rows
out       int64[slots, groups + 1]              by batch row: codes, and 1 where scores were finite
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from engine.config import EngineConfig, TalkerSpec
from engine.models.code_predictor import CodePredictor
from engine.models.graphs import Recorder
from engine.models.talker import Talker
from engine.tts.rows import Frame, TalkerRows
from engine.tts.sampling import (
    LANE_NUMBERS,
    NEG_INF,
    SamplerBatch,
    lane_numbers,
    penalise,
    philox_draws,
    repeated_ngram,
)
from engine.tts.slot import Slot, timed

_LEAST_SPAN = 512  # positions; a shorter span saves nothing that can be measured


class CapturedGenerator(TalkerRows):
    """Makes a frame in one recorded call."""

    def __init__(
        self,
        spec: TalkerSpec,
        talker: Talker,
        predictor: CodePredictor,
        config: EngineConfig,
        recorder: Recorder,
    ) -> None:
        super().__init__(spec, talker, predictor, config)
        slots, positions, hidden = config.slots, config.kv_positions, spec.talker.hidden
        fill = float("nan") if config.nan_fill else 0.0

        def numbers(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(slots, *shape, device=self.device, dtype=dtype)

        self.given = numbers(hidden, dtype=self.dtype)
        self.text = torch.full(
            (slots, positions + 1, hidden), fill, device=self.device, dtype=self.dtype
        )
        self.length, self.made, self.seed = numbers(), numbers(), numbers()
        self.numbers = numbers(LANE_NUMBERS, dtype=torch.float64)
        self.banned = numbers(spec.vocab, dtype=torch.bool)
        self.turn = torch.arange(slots, device=self.device)
        self.out = numbers(spec.code_groups + 1)
        self._fill = fill
        self._recorder = recorder
        self._recorded: dict[tuple[int, int], Callable[[], None]] = {}
        self._turn: tuple[int, ...] = ()  # what `turn` holds
        self._told = [0] * slots  # rows of the overlay that are in `text`

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.given.nbytes + self.text.nbytes

    @torch.inference_mode()
    def record(self) -> None:
        """Record the frames of all widths and spans; before the first slot is taken."""
        slots = len(self.turn)
        for width in range(1, slots + 1):
            for span in spans(self.cache.positions):
                frame = partial(self._frame, width, span)
                self._recorded[width, span] = self._recorder.record(frame)
                self.length.zero_()  # it may have run
                self.made.zero_()
        for index in range(slots):
            self.clear(index)

    def frame(self, slots: Sequence[Slot]) -> Frame:
        self._prepare(slots)
        length = max(self.cache.length[slot.index] for slot in slots)
        span = next(span for span in spans(self.cache.positions) if span > length)
        run = self._recorded.get((len(slots), span)) or partial(self._frame, len(slots), span)
        with timed(slots, "talker"):
            run()
            drawn = self.out[: len(slots)].to("cpu", copy=True)
        broken, stopped = [], []
        for slot, (*codes, fine), row in zip(slots, drawn.tolist(), drawn, strict=True):
            self.cache.length[slot.index] += 1
            if not fine:
                broken.append(slot)
            elif codes[0] == self.spec.codec_tokens.eos:
                stopped.append(slot)
            else:
                slot.stage(row[:-1], codes[0], self.given[slot.index])
        return Frame(broken, stopped)

    def clear(self, index: int) -> None:
        super().clear(index)
        self.given[index] = 0
        self.text[index] = self._fill
        for each in (self.length, self.made, self.seed, self.numbers, self.banned):
            each[index] = 0

    def _prepare(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            if slot.frames == 0:
                self._begin(slot)
        self.feed(slots)
        for slot in slots:
            self._tell(slot)
            self._ban(slot)
        turn = tuple(slot.index for slot in slots)
        if turn != self._turn:
            self._turn = turn
            self.turn[: len(turn)] = torch.tensor(turn)

    def _begin(self, slot: Slot) -> None:
        index, prompt, sampling = slot.index, slot.prompt, slot.entry.sampling
        self.given[index] = prompt.embeds[-1]
        self.text[index, 0] = 0
        self.text[index, 1:] = prompt.pad
        self.length[index] = self.cache.length[index]
        self.seed[index] = sampling.seed
        self.numbers[index] = torch.tensor(lane_numbers(sampling), dtype=torch.float64)
        self._told[index] = 0

    def _tell(self, slot: Slot) -> None:
        told, rows = self._told[slot.index], slot.prompt.overlay
        if told < len(rows):
            fresh = rows[told : self.text.shape[1] - 1]
            self.text[slot.index, 1 + told : 1 + told + len(fresh)] = fresh
            self._told[slot.index] = len(rows)

    def _ban(self, slot: Slot) -> None:
        size = slot.entry.sampling.no_repeat_ngram_size
        if size > 0:
            self.banned[slot.index] = False
            if banned := repeated_ngram(slot.history, size):
                self.banned[slot.index, torch.tensor(banned, device=self.device)] = True

    def _frame(self, width: int, span: int) -> None:
        turn = self.turn[:width]
        at, made = self.length[turn], self.made[turn]
        x = self.given[turn] + self.text[turn, made]
        attends = self.cache.ranged(turn, at, span)
        hidden = self.talker(x[:, None], self._rope.rows(at), attends)[:, 0]
        fine = _Fine(width, self.device)
        scores = fine(self.talker.logits(hidden))
        sampler = SamplerBatch.of(self.numbers[turn])
        u = philox_draws(self.seed[turn], made, self.spec.code_groups)
        first = sampler.draw_first(self._allowed(scores, turn, made, sampler), u[:, 0])
        # What follows of a row that has ended is nobody's.
        ended = (first == self.spec.codec_tokens.eos)[:, None] & fine.rows
        codes, total = self.predictor.predict(
            hidden,
            self.talker.codec_embd(first),
            self._frame_cache,
            self._frame_ropes,
            lambda step, scores: sampler.draw_rest(fine(scores), u[:, 1 + step]),
        )
        self.seen[turn, first] = torch.ones_like(first, dtype=torch.bool)
        self.given[turn] = total
        self.length[turn] = at + 1
        self.made[turn] = made + 1
        sound = (fine.rows | ended).long()
        self.out[:width] = torch.cat((first[:, None], codes, sound), dim=1)

    def _allowed(self, scores: Tensor, turn: Tensor, made: Tensor, sampler: SamplerBatch) -> Tensor:
        scores = scores.masked_fill(self._suppressed | self.banned[turn], NEG_INF)
        scores = penalise(scores, self.seen[turn], sampler.penalty)
        eos = self.spec.codec_tokens.eos
        scores[:, eos] = scores[:, eos].masked_fill(made < sampler.min_new, NEG_INF)
        return scores


class _Fine:
    """Passes scores on and notes the rows, bool[B, 1], in which all have been numbers. Others pass
    as numbers too: what is drawn of them must exist, for a device forgives no wrong index."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.rows = torch.ones(width, 1, dtype=torch.bool, device=device)

    def __call__(self, scores: Tensor) -> Tensor:
        self.rows &= torch.isfinite(scores).all(-1, keepdim=True)
        return scores.nan_to_num()


def spans(positions: int) -> list[int]:
    """The spans recorded for a cache of so many positions: doubling, the last is all of it."""
    found, span = [], _LEAST_SPAN
    while span < positions:
        found.append(span)
        span *= 2
    return [*found, positions]


__all__ = ["CapturedGenerator", "spans"]
