"""Framecast's engine: text in, speech out, many at once on one worker thread.

Names are imported on first use, so that `import engine` costs no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# OpenMP's helpers stay busy for milliseconds when they have nothing to do, beside other threads
# that have. It reads this when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

_HOME = {
    "DEFAULT_TEXT_STEPS": "engine.text.steps",
    "MOST_CLIP_S": "engine.voice",
    "MOST_TAIL_S": "engine.voice",
    "TEXT_STEPS": "engine.text.steps",
    "Audio": "engine.stream",
    "Cancelled": "engine.errors",
    "Clip": "engine.voice",
    "DeadlineExceeded": "engine.errors",
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EngineError": "engine.errors",
    "EngineStats": "engine.engine",
    "EngineUnavailable": "engine.errors",
    "FinishReason": "engine.request",
    "Finished": "engine.stream",
    "Fit": "engine.text.pace",
    "GenerationFailed": "engine.errors",
    "Health": "engine.engine",
    "InputTimeout": "engine.errors",
    "InvalidRequest": "engine.errors",
    "LiveStream": "engine.live",
    "ModelFileError": "engine.errors",
    "ModelFiles": "engine.config",
    "ModelInfo": "engine.catalog",
    "ModelNotFound": "engine.errors",
    "Overloaded": "engine.errors",
    "PayloadTooLarge": "engine.errors",
    "Pending": "engine.pending",
    "Sampling": "engine.request",
    "Segments": "engine.text.segments",
    "SlowReader": "engine.errors",
    "SpeechRequest": "engine.request",
    "Stats": "engine.stream",
    "Stream": "engine.stream",
    "UnknownVoice": "engine.errors",
    "UnsupportedMode": "engine.errors",
    "Utterance": "engine.utterance",
    "Voice": "engine.voice",
    "bundled_voice": "engine.assets",
    "check_text_steps": "engine.text.steps",
    "convert_checkpoint": "engine.convert.checkpoint",
    "fetch_model": "engine.convert.fetch",
    "fit": "engine.text.pace",
    "inspect": "engine.gguf.inspect",
    "load": "engine.engine",
    "pack_rvq": "engine.latents",
    "pack_spk": "engine.latents",
    "random_files": "engine.assets.full_size",
    "read_clip": "engine.audio.decode",
    "to_pcm16": "engine.stream",
    "unpack_rvq": "engine.latents",
    "unpack_spk": "engine.latents",
    "usable_cores": "engine.machine",
}

if TYPE_CHECKING:
    from engine.assets import bundled_voice
    from engine.assets.full_size import random_files
    from engine.audio.decode import read_clip
    from engine.catalog import ModelInfo
    from engine.config import EngineConfig, ModelFiles
    from engine.convert.checkpoint import convert_checkpoint
    from engine.convert.fetch import fetch_model
    from engine.engine import Engine, EngineStats, Health, load
    from engine.errors import (
        Cancelled,
        DeadlineExceeded,
        EngineError,
        EngineUnavailable,
        GenerationFailed,
        InputTimeout,
        InvalidRequest,
        ModelFileError,
        ModelNotFound,
        Overloaded,
        PayloadTooLarge,
        SlowReader,
        UnknownVoice,
        UnsupportedMode,
    )
    from engine.gguf.inspect import inspect
    from engine.latents import pack_rvq, pack_spk, unpack_rvq, unpack_spk
    from engine.live import LiveStream
    from engine.machine import usable_cores
    from engine.pending import Pending
    from engine.request import FinishReason, Sampling, SpeechRequest
    from engine.stream import Audio, Finished, Stats, Stream, to_pcm16
    from engine.text.pace import Fit, fit
    from engine.text.segments import Segments
    from engine.text.steps import DEFAULT_TEXT_STEPS, TEXT_STEPS, check_text_steps
    from engine.utterance import Utterance
    from engine.voice import MOST_CLIP_S, MOST_TAIL_S, Clip, Voice


def __getattr__(name: str) -> Any:
    try:
        module = importlib.import_module(_HOME[name])
    except KeyError:
        raise AttributeError(f"module 'engine' has no attribute {name!r}") from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME)


__all__ = [
    "DEFAULT_TEXT_STEPS",
    "MOST_CLIP_S",
    "MOST_TAIL_S",
    "TEXT_STEPS",
    "Audio",
    "Cancelled",
    "Clip",
    "DeadlineExceeded",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineStats",
    "EngineUnavailable",
    "FinishReason",
    "Finished",
    "Fit",
    "GenerationFailed",
    "Health",
    "InputTimeout",
    "InvalidRequest",
    "LiveStream",
    "ModelFileError",
    "ModelFiles",
    "ModelInfo",
    "ModelNotFound",
    "Overloaded",
    "PayloadTooLarge",
    "Pending",
    "Sampling",
    "Segments",
    "SlowReader",
    "SpeechRequest",
    "Stats",
    "Stream",
    "UnknownVoice",
    "UnsupportedMode",
    "Utterance",
    "Voice",
    "bundled_voice",
    "check_text_steps",
    "convert_checkpoint",
    "fetch_model",
    "fit",
    "inspect",
    "load",
    "pack_rvq",
    "pack_spk",
    "random_files",
    "read_clip",
    "to_pcm16",
    "unpack_rvq",
    "unpack_spk",
    "usable_cores",
]
