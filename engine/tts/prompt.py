"""The prompt: two streams, projected text and codec embeddings, added vector by vector.

Mirrors the prompt part of `Qwen3TTSForConditionalGeneration.generate` and `generate_icl_prompt`.
A `PromptPlan` is made where the request is accepted, from ids alone, and knows its length; the
worker turns it into tensors with `build_prompt`. While a text is still coming its plan is open:
there is no tts_eos yet, and `extend_prompt` adds to the overlay what comes.

section         text stream                     codec stream
instructions    instruction ids                 (none)
role            first 3 ids                     (none)
tags            tts_pad ..., tts_bos (last)     think tags, speaker, pad
whole text      text ids, tts_eos | tts_pad     pad ... | bos
incremental     first text id                   bos          (the rest becomes the overlay)
in-context      reference + text + tts_eos      bos + summed reference codes
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.config import TalkerSpec
from engine.incoming import OpenInput
from engine.models.code_predictor import CodePredictor
from engine.models.talker import Talker
from engine.voice import F32, I64, Clip

ROLE = 3  # ids before the text: the reference slices by count, whatever they spell
SUFFIX = 5  # ids after it
REFERENCE_SUFFIX = 2


@dataclass(frozen=True, slots=True, eq=False)
class ClipPlan:
    """A clip that was not heard yet; `tail_s` None and `frames` 0 are for its vector alone."""

    clip: Clip
    tail_s: float | None
    frames: int


@dataclass(frozen=True, slots=True, eq=False)
class PromptPlan:
    """Everything a prompt is made of, as ids.

    Args:
        role, text: the utterance's ids, cut by count.
        instructions: ids of the wrapped instructions, empty for none.
        tags: codec ids before the speaker.
        speaker_row: codec-embedding row of a named speaker, or None.
        speaker_vector: F32[talker hidden] of a clone, or None.
        reference_text, reference_codes: of an in-context clone (int64[frames, code groups]).
        whole_text: the whole text comes before the first frame.
        clip: what vector and codes are still to be made of (`heard`), or None.
        open: more text may come (`fed`).
    """

    role: tuple[int, ...]
    text: tuple[int, ...]
    instructions: tuple[int, ...]
    tags: tuple[int, ...]
    speaker_row: int | None
    speaker_vector: F32 | None
    reference_text: tuple[int, ...]
    reference_codes: I64 | None
    whole_text: bool
    clip: ClipPlan | None = None
    open: bool = False

    @property
    def cloned(self) -> bool:
        """The voice is not one of the model's own."""
        given = self.speaker_vector is not None or self.reference_codes is not None
        return given or self.clip is not None

    @property
    def reference_frames(self) -> int:
        """Frames of the reference an in-context clone goes on from; 0 for all others."""
        if self.clip is not None:
            return self.clip.frames
        return 0 if self.reference_codes is None else len(self.reference_codes)

    @property
    def positions(self) -> int:
        """Rows the prompt takes in the talker's cache."""
        vector = self.speaker_vector is not None or self.clip is not None
        speaker = self.speaker_row is not None or vector
        fixed = len(self.instructions) + len(self.role) + len(self.tags) + speaker + 1
        if self.reference_frames:
            codes = self.reference_frames + 1
            text = len(self.reference_text) + len(self.text) + 1
            return fixed + codes + (text if self.whole_text else 0)
        return fixed + (len(self.text) + 2 if self.whole_text else 1)

    def overlay_rows(self, count: int) -> int:
        """Rows of text that follow the prompt in the incremental layout, of `count` ids of text;
        negative when the prompt itself needs so many more."""
        if self.reference_frames:
            return len(self.reference_text) + count - self.reference_frames - 1
        return count - 1

    @property
    def first_ids(self) -> int:
        """Ids of text that have to be there before the first frame, if more are to come."""
        return max(1, -self.overlay_rows(0))

    def fed(self, source: OpenInput) -> PromptPlan:
        """The plan with the text that has come so far."""
        return replace(self, text=tuple(source.items), open=not source.ended)

    def heard(self, vector: F32, codes: I64 | None) -> PromptPlan:
        """The plan with what the clip came to: F32[hidden], int64[code groups, frames]."""
        frames = None if codes is None else codes.T.copy()
        return replace(self, speaker_vector=vector, reference_codes=frames, clip=None)


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A prompt as tensors.

    embeds [positions, hidden], of which the first `fixed` do not depend on the text;
    overlay [frames, hidden], added to the input after frame 0, 1, ...;
    eos [1, hidden], the overlay's last row once the text is whole;
    pad [hidden], added once the overlay is used up;
    taken, the text ids that are in it; open, more may come.
    """

    embeds: Tensor
    overlay: Tensor
    eos: Tensor
    pad: Tensor
    fixed: int
    taken: int
    open: bool

    def overlay_after(self, frame: int) -> Tensor:
        """What is added to the codec embeddings of frame `frame` (from 0): [hidden]."""
        if frame < len(self.overlay):
            return self.overlay[frame]
        assert not self.open, "the text of this frame has not come yet"
        return self.pad


def codec_tags(spec: TalkerSpec, language: int | None) -> tuple[int, ...]:
    """The codec ids before the speaker; `language` None lets the model choose."""
    ids = spec.codec_tokens
    if language is None:
        return ids.nothink, ids.think_bos, ids.think_eos
    return ids.think, ids.think_bos, language, ids.think_eos


def build_prompt(
    plan: PromptPlan,
    talker: Talker,
    predictor: CodePredictor,
    spec: TalkerSpec,
    *,
    alone: bool = False,
) -> Prompt:
    """Embed a plan with the model's tables; run on the worker thread.

    Args:
        alone: embed every id of text by itself, so that a row has the same bits whatever came
            with it (reference mode; slower).
    """
    assert plan.clip is None, "the clip was not heard yet"
    build = _Builder(talker, predictor, spec, alone)
    pad, bos, eos = build.control
    tags = build.codec(plan.tags)
    speaker = _speaker(plan, build)
    codec = torch.cat((tags, *speaker, build.codec((spec.codec_tokens.pad,))))
    filler = torch.cat((pad.expand(len(codec) - 1, -1), bos))
    head = [build.text(plan.role), filler + codec]
    if plan.instructions:
        head.insert(0, build.text(plan.instructions))
    if plan.reference_codes is not None:
        body, overlay = _in_context(plan, build)
    elif plan.whole_text:
        body, overlay = _whole_text(plan, build), pad[:0]
    else:
        first = build.text(plan.text[:1]) + build.codec((spec.codec_tokens.bos,))
        body, overlay = first, torch.cat((build.text(plan.text[1:]), build.end(plan)))
    # At least the last position stays: the scores of the first frame are read there.
    fixed = sum(map(len, head)) + min(len(plan.reference_text), max(0, len(body) - 1))
    embeds = torch.cat((*head, body))
    return Prompt(embeds, overlay, eos, pad[0], fixed, len(plan.text), plan.open)


def extend_prompt(prompt: Prompt, source: OpenInput, talker: Talker, *, alone: bool) -> Prompt:
    """The prompt with what has come of its text since; run on the worker thread."""
    rows = _embedded(talker, tuple(source.items[prompt.taken :]), alone)
    end = prompt.eos if source.ended else prompt.eos[:0]
    overlay = torch.cat((prompt.overlay, rows, end))
    return replace(prompt, overlay=overlay, taken=len(source.items), open=not source.ended)


def _embedded(talker: Talker, ids: tuple[int, ...], alone: bool) -> Tensor:
    given = torch.tensor(ids, dtype=torch.int64, device=talker.device)
    if not alone or len(ids) < 2:
        return talker.embed_text(given)
    return torch.cat([talker.embed_text(each) for each in torch.split(given, 1)])


class _Builder:
    def __init__(
        self, talker: Talker, predictor: CodePredictor, spec: TalkerSpec, alone: bool
    ) -> None:
        self.alone = alone
        self.talker = talker
        self.predictor = predictor
        self.spec = spec
        self.device = talker.device
        ids = spec.text_tokens
        embedded = self.text((ids.tts_pad, ids.tts_bos, ids.tts_eos))
        self.control = embedded[0:1], embedded[1:2], embedded[2:3]

    def text(self, ids: tuple[int, ...]) -> Tensor:
        return _embedded(self.talker, ids, self.alone)

    def end(self, plan: PromptPlan) -> Tensor:
        """What stands behind the text: tts_eos, unless more may come."""
        eos = self.control[2]
        return eos[:0] if plan.open else eos

    def codec(self, ids: tuple[int, ...]) -> Tensor:
        table: Tensor = self.talker.codec_embd(torch.tensor(ids, device=self.device))
        return table

    def vector(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.control[0])[None]


def _speaker(plan: PromptPlan, build: _Builder) -> tuple[Tensor, ...]:
    if plan.speaker_vector is not None:
        return (build.vector(plan.speaker_vector),)
    if plan.speaker_row is not None:
        return (build.codec((plan.speaker_row,)),)
    return ()


def _whole_text(plan: PromptPlan, build: _Builder) -> Tensor:
    ids = build.spec.codec_tokens
    pad, _, eos = build.control
    text = torch.cat((build.text(plan.text), eos)) + build.codec((ids.pad,))
    return torch.cat((text, pad + build.codec((ids.bos,))))


def _in_context(plan: PromptPlan, build: _Builder) -> tuple[Tensor, Tensor]:
    assert plan.reference_codes is not None
    ids = build.spec.codec_tokens
    pad = build.control[0]
    # One by one: a product's last bits may depend on what else is in it.
    text = torch.cat((build.text(plan.reference_text), build.text(plan.text), build.end(plan)))
    codes = torch.from_numpy(plan.reference_codes).to(build.device)
    frames = build.talker.codec_embd(codes[:, 0]) + build.predictor.embed(codes[:, 1:])
    codec = torch.cat((build.codec((ids.bos,)), frames))
    if plan.whole_text:
        return torch.cat((text + build.codec((ids.pad,)), codec + pad)), pad[:0]
    if len(text) > len(codec):
        return text[: len(codec)] + codec, text[len(codec) :]
    return torch.cat((text, pad.expand(len(codec) - len(text), -1))) + codec, pad[:0]


__all__ = [
    "REFERENCE_SUFFIX",
    "ROLE",
    "SUFFIX",
    "ClipPlan",
    "Prompt",
    "PromptPlan",
    "build_prompt",
    "codec_tags",
    "extend_prompt",
]
