"""The talker's side of every slot: its caches, and prompts on their way into them.

name     dtype[shape]              meaning, row = slot
cache    see KVCache               keys and values of the talker
seen     bool[slots, vocab]        codebook 0 drawn so far, for the repetition penalty
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.config import EngineConfig, TalkerSpec
from engine.models.code_predictor import CodePredictor
from engine.models.graphs import Aside, SameStream
from engine.models.kernels import module_nbytes
from engine.models.kv_cache import KVCache
from engine.models.layers import Rope
from engine.models.talker import Talker
from engine.pieces import Steps
from engine.tts.head import Prefix
from engine.tts.prompt import Prompt, PromptPlan, build_prompt, extend_prompt
from engine.tts.slot import Slot

# Positions times width that go through the talker in one piece: on two cores about as long as a
# frame may take. Fixed, because a row's last bits may depend on how many went with it.
_PIECE = 40 * 1024
_LEAST_PIECE = 8
_CUDA_PIECE = 512  # there a piece costs what it takes to launch


class Frame(NamedTuple):
    """The slots for which a frame was not made: scores that are not numbers, or eos."""

    broken: list[Slot]
    stopped: list[Slot]


class TalkerRows(ABC):
    """What generators share. Methods take the slots they concern."""

    def __init__(
        self, spec: TalkerSpec, talker: Talker, predictor: CodePredictor, config: EngineConfig
    ) -> None:
        self.device, self.dtype = talker.device, talker.dtype
        slots, groups, nan_fill = config.slots, spec.code_groups, config.nan_fill
        self.spec = spec
        self.talker = talker
        self.predictor = predictor
        self.cache = KVCache(
            spec.talker,
            slots,
            config.kv_positions,
            device=self.device,
            dtype=kv_dtype(config, talker),
            nan_fill=nan_fill,
        )
        self.seen = torch.zeros(slots, spec.vocab, device=self.device, dtype=torch.bool)
        least = _CUDA_PIECE if self.device.type == "cuda" else _LEAST_PIECE
        self.piece = max(least, _PIECE // spec.talker.hidden)
        self.aside: Aside = SameStream()
        self._alone = config.reference
        self._rope = talker.rope(config.kv_positions)
        self._frame_cache = KVCache(
            spec.predictor,
            slots,
            groups,
            device=self.device,
            dtype=self.dtype,
            nan_fill=nan_fill,
        )
        self._frame_ropes = frame_ropes(predictor, groups)
        self._suppressed = torch.zeros(spec.vocab, device=self.device, dtype=torch.bool)
        self._suppressed[list(spec.suppressed)] = True
        self._suppressed[spec.codec_tokens.eos] = False

    @property
    def nbytes(self) -> int:
        """Bytes of weights and caches."""
        weights = module_nbytes(self.talker) + module_nbytes(self.predictor)
        return weights + self.cache.nbytes + self._frame_cache.nbytes

    @abstractmethod
    def frame(self, slots: Sequence[Slot]) -> Frame:
        """Make a frame for each slot and stage it there."""

    def prompt(self, plan: PromptPlan) -> Prompt:
        """A plan as tensors."""
        return build_prompt(plan, self.talker, self.predictor, self.spec, alone=self._alone)

    def prefill(self, index: int, prompt: Prompt, prefix: Prefix) -> Steps[Callable[[], bool]]:
        """Run a prompt through the talker into row `index`, from where its prefix ends, in pieces.

        The last position is left: it goes with the slot's first frame, beside all other slots.

        Returns:
            what tells whether the device is done with it.
        """
        with self.aside():
            self.cache.restore(index, prefix.k, prefix.v)
        yield from self._extend(self.cache, index, prompt.embeds[prefix.positions : -1])
        return self.aside.landed()

    def prefix(self, prompt: Prompt) -> Steps[Prefix]:
        """Run the part of a prompt that does not depend on its text through the talker."""
        with self.aside():
            cache = KVCache(
                self.spec.talker, 1, prompt.fixed, device=self.device, dtype=self.cache.k.dtype
            )
        yield from self._extend(cache, 0, prompt.embeds[: prompt.fixed])
        with self.aside():
            return Prefix(*cache.rows(0))

    def feed(self, slots: Sequence[Slot]) -> None:
        """Embed what has come of each slot's text since its last frame."""
        for slot in slots:
            source, prompt = slot.entry.input, slot.prompt
            if source and (prompt.taken < len(source.items) or prompt.open is source.ended):
                slot.prompt = extend_prompt(prompt, source, self.talker, alone=self._alone)

    def clear(self, index: int) -> None:
        """Forget everything about a slot."""
        self.cache.release(index)
        self.seen[index] = False

    def _extend(self, cache: KVCache, row: int, embeds: Tensor) -> Steps[None]:
        self.aside.takes(embeds)
        for first in range(0, len(embeds), self.piece):
            yield
            part = embeds[first : first + self.piece]
            start = cache.length[row]
            with self.aside():
                rope = self._rope.span(start, start + len(part))
                self.talker(part[None], rope, cache.prefill(row, len(part)))


def frame_ropes(predictor: CodePredictor, groups: int) -> list[Rope]:
    """One per step of the predictor: of its first two positions, then of one more each."""
    table = predictor.rope(groups)
    return [table.span(0, 2), *(table.span(at, at + 1) for at in range(2, groups))]


def kv_dtype(config: EngineConfig, talker: Talker) -> torch.dtype:
    """What keys and values are kept in: as asked for, or BF16 beside packed weights."""
    if config.kv_dtype == "auto":
        return torch.bfloat16 if talker.packed else talker.dtype
    return torch.bfloat16 if config.kv_dtype == "bf16" else torch.float32


__all__ = ["Frame", "TalkerRows", "frame_ropes", "kv_dtype"]
