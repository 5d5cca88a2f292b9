"""The prompt: two streams, projected text and codec embeddings, added vector by vector.

Mirrors the prompt part of `Qwen3TTSForConditionalGeneration.generate` and `generate_icl_prompt`.
A `PromptPlan` is made where the request is accepted, from ids alone, and knows its length; the
worker turns it into tensors with `build_prompt`.

section         text stream                     codec stream
instructions    instruction ids                 (none)
role            first 3 ids                     (none)
tags            tts_pad ..., tts_bos (last)     think tags, speaker, pad
whole text      text ids, tts_eos | tts_pad     pad ... | bos
incremental     first text id                   bos          (the rest becomes the overlay)
in-context      reference + text + tts_eos      bos + summed reference codes
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.config import TalkerSpec
from engine.models.code_predictor import CodePredictor
from engine.models.talker import Talker

ROLE = 3  # ids before the text: the reference slices by count, whatever they spell
SUFFIX = 5  # ids after it
REFERENCE_SUFFIX = 2


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
    """

    role: tuple[int, ...]
    text: tuple[int, ...]
    instructions: tuple[int, ...]
    tags: tuple[int, ...]
    speaker_row: int | None
    speaker_vector: npt.NDArray[np.float32] | None
    reference_text: tuple[int, ...]
    reference_codes: npt.NDArray[np.int64] | None
    whole_text: bool

    @property
    def positions(self) -> int:
        """Rows the prompt takes in the talker's cache."""
        speaker = self.speaker_row is not None or self.speaker_vector is not None
        fixed = len(self.instructions) + len(self.role) + len(self.tags) + speaker + 1
        if self.reference_codes is not None:
            codes = len(self.reference_codes) + 1
            text = len(self.reference_text) + len(self.text) + 1
            return fixed + codes + (text if self.whole_text else 0)
        return fixed + (len(self.text) + 2 if self.whole_text else 1)


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A prompt as tensors.

    embeds [positions, hidden]; overlay [frames, hidden], added to the input after frame 0, 1, ...;
    pad [hidden], added once the overlay is used up.
    """

    embeds: Tensor
    overlay: Tensor
    pad: Tensor

    def overlay_after(self, frame: int) -> Tensor:
        """What is added to the codec embeddings of frame `frame` (from 0): [hidden]."""
        return self.overlay[frame] if frame < len(self.overlay) else self.pad


def codec_tags(spec: TalkerSpec, language: int | None) -> tuple[int, ...]:
    """The codec ids before the speaker; `language` None lets the model choose."""
    ids = spec.codec_tokens
    if language is None:
        return ids.nothink, ids.think_bos, ids.think_eos
    return ids.think, ids.think_bos, language, ids.think_eos


def build_prompt(
    plan: PromptPlan, talker: Talker, predictor: CodePredictor, spec: TalkerSpec
) -> Prompt:
    """Embed a plan with the model's tables; run on the worker thread."""
    build = _Builder(talker, predictor, spec)
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
        body, overlay = first, torch.cat((build.text(plan.text[1:]), eos))
    return Prompt(torch.cat((*head, body)), overlay, pad[0])


class _Builder:
    def __init__(self, talker: Talker, predictor: CodePredictor, spec: TalkerSpec) -> None:
        self.talker = talker
        self.predictor = predictor
        self.spec = spec
        self.device = talker.codec_head.weight.device
        ids = spec.text_tokens
        embedded = self.text((ids.tts_pad, ids.tts_bos, ids.tts_eos))
        self.control = embedded[0:1], embedded[1:2], embedded[2:3]

    def text(self, ids: tuple[int, ...]) -> Tensor:
        return self.talker.embed_text(torch.tensor(ids, dtype=torch.int64, device=self.device))

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
    pad, _, eos = build.control
    text = torch.cat((build.text(plan.reference_text + plan.text), eos))
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
    "Prompt",
    "PromptPlan",
    "build_prompt",
    "codec_tags",
]
