"""Frames of codes for a batch of slots: talker, sampler and code predictor over static tensors.

name     dtype[shape]              meaning, row = slot
cache    see KVCache               keys and values of the talker
hidden   dtype[slots, hidden]      the talker's last state after the final norm
logits   F32[slots, vocab]         its scores of the next codebook 0
seen     bool[slots, vocab]        codebook 0 drawn so far, for the repetition penalty

A batch is the slots that run or, in reference mode, always all of them: at a constant width a
row's arithmetic does not depend on what the other rows hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import EngineConfig, TalkerSpec
from engine.models.code_predictor import CodePredictor
from engine.models.kernels import module_nbytes
from engine.models.kv_cache import KVCache
from engine.models.talker import Talker
from engine.pieces import Steps
from engine.tts.head import Prefix
from engine.tts.prompt import Prompt, PromptPlan, build_prompt, extend_prompt
from engine.tts.sampling import (
    LaneSampling,
    SamplerBatch,
    penalise,
    philox_uniforms,
    repeated_ngram,
)
from engine.tts.slot import Slot, timed

# What a prefix takes through the talker in one piece: about as long as a frame may take.
PREFIX_POSITIONS = 8

_IDLE = LaneSampling(0, 0.0, 0, 1.0, 1.0, 0.0, 0, 1.0, 0, 0)


class Generator:
    """Owns the talker's side of every slot. Methods take the slots they concern."""

    def __init__(
        self, spec: TalkerSpec, talker: Talker, predictor: CodePredictor, config: EngineConfig
    ) -> None:
        self.device, dtype = talker.device, talker.dtype
        slots, groups = config.slots, spec.code_groups
        self.spec = spec
        self.talker = talker
        self.predictor = predictor
        self.cache = KVCache(
            spec.talker,
            slots,
            config.kv_positions,
            device=self.device,
            dtype=kv_dtype(config, talker),
            nan_fill=config.nan_fill,
        )
        self.hidden = torch.zeros(slots, spec.talker.hidden, device=self.device, dtype=dtype)
        self.logits = torch.zeros(slots, spec.vocab, device=self.device)
        self.seen = torch.zeros(slots, spec.vocab, device=self.device, dtype=torch.bool)
        self._constant_width = config.reference
        self._rope = talker.rope(config.kv_positions)
        self._frame_cache = KVCache(
            spec.predictor, slots, groups, device=self.device, dtype=dtype, nan_fill=config.nan_fill
        )
        frame_rope = predictor.rope(groups)
        self._frame_ropes = [frame_rope.span(0, 2)]
        self._frame_ropes += [frame_rope.span(at, at + 1) for at in range(2, groups)]
        self._suppressed = torch.zeros(spec.vocab, device=self.device, dtype=torch.bool)
        self._suppressed[list(spec.suppressed)] = True
        self._suppressed[spec.codec_tokens.eos] = False
        self._sampler = SamplerBatch([_IDLE], self.device)

    @property
    def nbytes(self) -> int:
        """Bytes of weights and caches."""
        weights = module_nbytes(self.talker) + module_nbytes(self.predictor)
        return weights + self.cache.nbytes + self._frame_cache.nbytes

    def prefill(self, index: int, plan: PromptPlan, prefix: Prefix | None = None) -> Prompt:
        """Run a prompt through the talker into row `index`, from where its prefix ends; its scores
        are then there."""
        prompt = self._prompt(plan)
        if prefix is not None:
            self.cache.restore(index, prefix.k, prefix.v)
        start = 0 if prefix is None else prefix.positions
        hidden = self._extend(self.cache, index, prompt.embeds[start:])
        self.hidden[index] = hidden
        self.logits[index] = self.talker.logits(hidden)
        return prompt

    def prefix(self, plan: PromptPlan) -> Steps[Prefix]:
        """Run the part of a prompt that does not depend on its text through the talker."""
        prompt = self._prompt(plan)
        cache = KVCache(
            self.spec.talker, 1, prompt.fixed, device=self.device, dtype=self.cache.k.dtype
        )
        for part in torch.split(prompt.embeds[: prompt.fixed], PREFIX_POSITIONS):
            self._extend(cache, 0, part)
            yield
        return Prefix(*cache.rows(0))

    def feed(self, slots: Sequence[Slot]) -> None:
        """Embed what has come of each slot's text since its last frame."""
        for slot in slots:
            source, prompt = slot.entry.input, slot.prompt
            if source and (prompt.taken < len(source.items) or prompt.open is source.ended):
                slot.prompt = extend_prompt(prompt, source, self.talker, alone=self._constant_width)

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

    def draw(self, slots: Sequence[Slot]) -> list[Slot]:
        """Draw a frame for each slot and stage it there; returns the slots that drew eos."""
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
        self._predict([slot for slot in slots if slot.index not in ended], batch, first, u)
        return [slot for slot in slots if slot.index in ended]

    def clear(self, index: int) -> None:
        """Forget everything about a slot."""
        self.cache.release(index)
        self.seen[index] = False
        self.hidden[index] = 0
        self.logits[index] = 0

    def _prompt(self, plan: PromptPlan) -> Prompt:
        return build_prompt(
            plan, self.talker, self.predictor, self.spec, alone=self._constant_width
        )

    def _extend(self, cache: KVCache, row: int, embeds: Tensor) -> Tensor:
        start, count = cache.length[row], len(embeds)
        rope = self._rope.span(start, start + count)
        hidden: Tensor = self.talker(embeds[None], rope, cache.prefill(row, count))[0, -1]
        return hidden

    def _predict(self, slots: Sequence[Slot], batch: _Batch, first: Tensor, u: Tensor) -> None:
        if not slots:
            return
        if not self._constant_width and len(slots) < len(batch):
            going = {slot.index for slot in slots}
            kept = self._ints([row for row, (index, _) in enumerate(batch) if index in going])
            batch = [each for each in batch if each[0] in going]
            first, u = first[kept], u[kept]
        sampler = self._sampler_for(batch)
        with timed(slots, "predictor"):
            codes, total = self.predictor.predict(
                self.hidden[self._ints([index for index, _ in batch])],
                self.talker.codec_embd(first),
                self._frame_cache,
                self._frame_ropes,
                sampler.frame(u[:, 1:]),
            )
        frames = torch.cat((first[:, None], codes), dim=1)
        for row, (index, slot) in enumerate(batch):
            if slot and slot in slots:
                code = int(first[row])
                self.seen[index, code] = True
                slot.stage(frames[row], code, total[row])

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


def kv_dtype(config: EngineConfig, talker: Talker) -> torch.dtype:
    """What keys and values are kept in: as asked for, or BF16 beside packed weights."""
    if config.kv_dtype == "auto":
        return torch.bfloat16 if talker.packed else talker.dtype
    return torch.bfloat16 if config.kv_dtype == "bf16" else torch.float32


# Rows of a batch: the slot index and what runs there; None is an idle row (reference mode).
_Batch = list[tuple[int, Slot | None]]

__all__ = ["Generator"]
