"""The voices of one model: heard, primed and kept, so that a voice used again costs nothing.

For a request the worker makes, in pieces:

    clip    -> vector, codes      the two encoders
    codes   -> a primed lane      the codec decoder hears the reference; its sound is discarded
    plan    -> a prefix           the talker's keys and values of instructions, role, tags, speaker
                                  and reference

For a cloned voice all of it is made before it takes a slot; the model's own voices have a prefix
alone, made in the slot. Each is kept by a digest of everything it is made of. What is kept is what
was made, to the last bit, and a request takes the same way whether it was kept or not: so it sounds
the same.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch

from engine.codec.state import CodecState
from engine.config import EngineConfig, ModelSpec
from engine.pieces import Steps
from engine.tts.head import Head, Prefix
from engine.tts.kept import Keeper
from engine.tts.prompt import Prompt, PromptPlan
from engine.tts.rows import TalkerRows
from engine.tts.vocoder import Vocoder
from engine.tts.voices import Heard, VoiceEncoder
from engine.voice import Clip, Voice, content_key


class Cloning:
    """Makes the heads of cloned requests, and voices of clips. Runs on the worker thread."""

    def __init__(
        self, spec: ModelSpec, generator: TalkerRows, vocoder: Vocoder, config: EngineConfig
    ) -> None:
        self.keeper = Keeper(config.voice_cache_bytes)
        self.encoder = VoiceEncoder(spec, self.keeper, generator.device)
        self._generator = generator
        self._vocoder = vocoder

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept and of the encoders loaded so far."""
        return self.keeper.nbytes + self.encoder.nbytes

    def knows(self, plan: PromptPlan) -> bool:
        """`steps` would have nothing to do."""
        if plan.clip is not None:
            heard = self.encoder.known(plan.clip.clip, plan.clip.tail_s)
            if heard is None:
                return False
            plan = plan.heard(*heard)
        return None not in [self.keeper.peek(key) for key in _keys(plan) if key is not None]

    @torch.inference_mode()
    def steps(self, plan: PromptPlan) -> Steps[Head]:
        """Make the head of a cloned request, of what is kept where it can."""
        if plan.clip is not None:
            heard = yield from self.encoder.steps(plan.clip.clip, plan.clip.tail_s)
            plan = plan.heard(*heard)
        for_lane, _ = _keys(plan)
        lane: CodecState | None = None
        if for_lane is not None and plan.reference_codes is not None:
            lane = self.keeper.get(for_lane)
            if lane is None:
                lane = yield from self._vocoder.primed(plan.reference_codes)
                self.keeper.keep(for_lane, lane, lane.nbytes, *_origins(plan))
        prefix = yield from self.prefix(plan)
        return Head(plan, prefix, lane)

    @torch.inference_mode()
    def prefix(self, plan: PromptPlan, prompt: Prompt | None = None) -> Steps[Prefix]:
        """The keys and values of what does not depend on a prompt's text, made or kept.

        Args:
            prompt: the plan's, if it is there.
        """
        _, key = _keys(plan)
        prefix: Prefix | None = self.keeper.get(key)
        if prefix is None:
            prefix = yield from self._generator.prefix(prompt or self._generator.prompt(plan))
            self.keeper.keep(key, prefix, prefix.nbytes, *_origins(plan))
        return prefix

    def hear(self, clip: Clip, tail_s: float | None) -> Steps[Heard]:
        """The vector of a clip, and its codes with so much silence unless `tail_s` is None."""
        return self.encoder.steps(clip, tail_s)

    def forget(self, voice: Voice) -> int:
        """Drop all that was made of a voice or of its clip; returns the bytes freed."""
        codes = None if voice.codes is None else voice.codes.T
        keys = {content_key(voice.embedding), content_key(codes), voice.clip or ""}
        return self.keeper.forget(frozenset(keys - {""}))


def _origins(plan: PromptPlan) -> set[str]:
    keys = {content_key(plan.speaker_vector), content_key(plan.reference_codes)}
    return keys - {""}


def _keys(plan: PromptPlan) -> tuple[Hashable | None, Hashable]:
    codes = content_key(plan.reference_codes)
    lane = ("lane", codes) if codes else None
    speaker = (plan.speaker_row, content_key(plan.speaker_vector))
    said = (plan.role, plan.tags, plan.reference_text, plan.instructions, plan.whole_text)
    return lane, ("prefix", speaker, codes, said)


__all__ = ["Cloning"]
