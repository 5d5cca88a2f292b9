"""Where the parity tests touch the engine: what it makes of a request, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

import engine
from engine.pieces import run_through
from engine.tts.intake import Envelope
from engine.tts.slot import Slot

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Prepared:
    """A prompt before the first frame, named as in the reference files."""

    ids: npt.NDArray[np.int64]
    instruction_ids: npt.NDArray[np.int64]
    reference_ids: npt.NDArray[np.int64]
    reference_codes: npt.NDArray[np.int64]
    embeddings: F32
    overlay: F32
    pad: F32
    first_logits: F32


@dataclass(frozen=True)
class Spoken:
    """What came of a request: codes int64[frames, groups] and the sound of the stream."""

    codes: npt.NDArray[np.int64]
    audio: F32
    reason: engine.FinishReason
    warnings: tuple[str, ...]


class Ours:
    """One loaded model, with its inner values within reach."""

    def __init__(self, files: engine.ModelFiles, **config: Any) -> None:
        settings = {"device": "cpu", "dtype": "f32", "slots": 2, "nan_fill": True} | config
        self.engine = engine.load(files, engine.EngineConfig(**settings))
        self._runner = self.engine._runners[0]
        self._intake = next(iter(self.engine._intakes.values()))

    def close(self) -> None:
        self.engine.close()

    def prepare(self, request: engine.SpeechRequest) -> Prepared:
        entry = self._intake.entry(request, Envelope("parity"), _nothing, _nothing)
        generator = self._runner._generator

        @torch.inference_mode()
        def prefill() -> tuple[Any, Any, torch.Tensor]:
            slot = self._runner._open(0, entry, 0.0)
            run_through(slot.filling)
            generator.decode([slot])
            logits = generator.logits[0].clone()
            self._runner._clear(0)
            return slot.entry.plan, slot.prompt, logits

        plan, prompt, logits = self.engine.call(prefill)
        codes, groups = plan.reference_codes, generator.spec.code_groups
        return Prepared(
            ids=np.array(self._intake._tokenizer.utterance(request.text)),
            instruction_ids=np.array(plan.instructions, dtype=np.int64),
            reference_ids=np.array(plan.reference_text, dtype=np.int64),
            reference_codes=codes.T if codes is not None else np.zeros((groups, 0), np.int64),
            embeddings=prompt.embeds.numpy(),
            overlay=prompt.overlay.numpy(),
            pad=prompt.pad.numpy(),
            first_logits=logits.numpy(),
        )

    def speak(self, request: engine.SpeechRequest) -> Spoken:
        with recorded_codes() as frames:
            stream = self.engine.submit(request)
            items = list(stream)
        audio = [item.pcm for item in items if isinstance(item, engine.Audio)]
        end = items[-1]
        assert isinstance(end, engine.Finished)
        return Spoken(np.array(frames), np.concatenate(audio), end.reason, stream.warnings)


@contextmanager
def recorded_codes() -> Iterator[list[list[int]]]:
    """Collect the frames of whatever is spoken meanwhile, in order: run one request at a time."""
    frames: list[list[int]] = []
    stage = Slot.stage

    def recording(slot: Slot, codes: torch.Tensor, first: int, embedded: torch.Tensor) -> None:
        frames.append(codes.tolist())
        stage(slot, codes, first, embedded)

    with patch.object(Slot, "stage", recording):
        yield frames


def _nothing() -> None:
    pass
