"""The voice that comes with Framecast; CARD.md says what it is."""

from __future__ import annotations

from pathlib import Path

from engine.config import ModelFiles

_HERE = Path(__file__).parent


def bundled_voice() -> ModelFiles:
    """The files of the bundled voice: English, three speakers, 24 kHz."""
    return ModelFiles(_HERE / "talker.gguf", _HERE / "codec.gguf", "framecast-voice")


__all__ = ["bundled_voice"]
