"""What a caller asks for, as pure data: no tensors, picklable, comparable by value."""

from __future__ import annotations

import enum
import secrets
import time
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.voice import TAIL_S, Clip, Voice

Task = Literal["custom_voice", "voice_design", "base"]

SEED_LIMIT = 2**63


class FinishReason(enum.StrEnum):
    """Why an utterance ended without an error."""

    STOP = "stop"  # the model said so
    LENGTH = "length"  # the frame ceiling
    LOOP = "loop"  # the codes repeated
    SILENCE = "silence"  # nothing audible for too long


@dataclass(frozen=True, slots=True)
class Sampling:
    """How codes are drawn. None takes the model file's value, then the published default.

    `temperature` 0 is greedy; without `subtalker_temperature` it makes both stages greedy.
    `seed` is 0 to 2**63 - 1, None or negative draws one. `max_new_tokens` counts frames.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    subtalker_temperature: float | None = None
    subtalker_top_k: int | None = None
    subtalker_top_p: float | None = None
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 2
    max_new_tokens: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SpeechRequest:
    """One text to be spoken.

    Args:
        text: what to say; control markers in it are ordinary text.
        voice: a named speaker, a `Voice` for a Base model, or None for the model's default.
        language: a language name, ISO code, BCP-47 tag or "auto".
        instructions: how to say it; never spoken.
        task: what the model must be able to do; None infers it.
        reference: a clip whose voice a Base model takes; with `reference_text`, what the clip
            says, it goes on in the clip's manner (an in-context clone).
        ref_tail_silence: seconds of silence put after the clip of an in-context clone, 0 to 2, so
            that its last sound is not carried on.
        speaker_embedding: F32[talker hidden], the voice of a Base model.
        reference_codes: int64[code groups, frames], with `reference_text` an in-context clone.
        non_streaming_mode: True lays the whole text before the first frame, False interleaves
            it; None takes the mode's default.
        first_chunk_frames: frames made before a listener's first sound, 1 to 64, where a steady
            start is worth more than an early one; None for the engine's `ramp`.
        model: the name of a loaded model, None for the default one.
        normalize: what `Engine.speak` does to the text first: a list of the front end's steps,
            True for the engine's, False for none, not even a final mark; None as the engine is
            set. `submit` takes the text as it is.
    """

    text: str
    voice: str | Voice | None = None
    language: str = "auto"
    instructions: str | None = None
    task: Task | None = None
    speaker_embedding: npt.NDArray[np.float32] | None = None
    reference_codes: npt.NDArray[np.int64] | None = None
    reference_text: str | None = None
    reference: Clip | None = None
    ref_tail_silence: float = TAIL_S
    non_streaming_mode: bool | None = None
    first_chunk_frames: int | None = None
    model: str | None = None
    normalize: bool | tuple[str, ...] | None = None
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class Job:
    """The envelope the scheduler sees. Times are seconds of `time.monotonic`."""

    id: str
    model: str
    cost_frames: int  # the frame ceiling: what the job may use at most
    arrival: float = field(default_factory=time.monotonic)
    tenant: str = ""
    priority: int = 0
    deadline: float | None = None
    continuation: bool = False  # a later part of a request that is already speaking


def draw_seed() -> int:
    """A fresh random seed, 0 to 2**63 - 1."""
    return secrets.randbelow(SEED_LIMIT)


def derive_seed(seed: int, index: int) -> int:
    """The seed of part `index` of a request: part 0 keeps the seed, the others are mixed
    from it (SplitMix64), so a repeated request repeats every part."""
    if index == 0:
        return seed
    mask = 2**64 - 1
    z = (seed + index * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) % SEED_LIMIT


__all__ = [
    "SEED_LIMIT",
    "FinishReason",
    "Job",
    "Sampling",
    "SpeechRequest",
    "Task",
    "derive_seed",
    "draw_seed",
]
