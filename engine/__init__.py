"""Framecast's engine: text in, speech out, many at once on one worker thread.

Names are imported on first use, so that `import engine` costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Audio": "engine.stream",
    "Cancelled": "engine.errors",
    "DeadlineExceeded": "engine.errors",
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EngineError": "engine.errors",
    "EngineStats": "engine.engine",
    "EngineUnavailable": "engine.errors",
    "FinishReason": "engine.request",
    "Finished": "engine.stream",
    "GenerationFailed": "engine.errors",
    "Health": "engine.engine",
    "InvalidRequest": "engine.errors",
    "ModelFileError": "engine.errors",
    "ModelFiles": "engine.config",
    "ModelInfo": "engine.catalog",
    "ModelNotFound": "engine.errors",
    "Overloaded": "engine.errors",
    "PayloadTooLarge": "engine.errors",
    "Sampling": "engine.request",
    "SlowReader": "engine.errors",
    "SpeechRequest": "engine.request",
    "Stats": "engine.stream",
    "Stream": "engine.stream",
    "UnknownVoice": "engine.errors",
    "UnsupportedMode": "engine.errors",
    "Utterance": "engine.utterance",
    "bundled_voice": "engine.assets",
    "convert_checkpoint": "engine.convert.checkpoint",
    "fetch_model": "engine.convert.fetch",
    "inspect": "engine.gguf.inspect",
    "load": "engine.engine",
    "to_pcm16": "engine.stream",
}

if TYPE_CHECKING:
    from engine.assets import bundled_voice
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
    from engine.request import FinishReason, Sampling, SpeechRequest
    from engine.stream import Audio, Finished, Stats, Stream, to_pcm16
    from engine.utterance import Utterance


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
    "Audio",
    "Cancelled",
    "DeadlineExceeded",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineStats",
    "EngineUnavailable",
    "FinishReason",
    "Finished",
    "GenerationFailed",
    "Health",
    "InvalidRequest",
    "ModelFileError",
    "ModelFiles",
    "ModelInfo",
    "ModelNotFound",
    "Overloaded",
    "PayloadTooLarge",
    "Sampling",
    "SlowReader",
    "SpeechRequest",
    "Stats",
    "Stream",
    "UnknownVoice",
    "UnsupportedMode",
    "Utterance",
    "bundled_voice",
    "convert_checkpoint",
    "fetch_model",
    "inspect",
    "load",
    "to_pcm16",
]
