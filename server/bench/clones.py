"""What a saved voice costs: its first audio beside the model's default voice, and the encoders."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import engine
from server.bench.listening import EngineEars
from server.bench.load import run_round


def clone_round(
    speech: engine.Engine, text: str, clip: Path, said: str | None, *, frames: int, rounds: int
) -> dict[str, float]:
    """Save the voice of a clip and let it speak, by turns with the model's default voice.

    Args:
        said: what the clip says, for an in-context clone; None for its vector alone.

    Returns:
        medians in seconds: `extract_s` from the clip to the saved voice, `first_s` the voice's
        first audio when nothing of it is cached, `again_s` its first audio from then on, and
        `preset_s` that of the default voice; `ratio` is `again_s` to `preset_s`.

    Raises:
        UnsupportedMode: the model takes no voices from clips.
        InvalidRequest: the clip cannot be read.
    """
    heard = engine.read_clip(clip.read_bytes())
    start = time.perf_counter()
    voice = speech.extract_voice(heard, transcript=said).result()
    extracted = time.perf_counter() - start

    def first_audio(by: engine.Voice | None) -> float:
        return run_round(EngineEars(speech, by), text, 1, frames).first_audio_s[0]

    first = first_audio(voice)
    turns = [(first_audio(voice), first_audio(None)) for _ in range(rounds)]
    again, preset = (statistics.median(times) for times in zip(*turns, strict=True))
    return {
        "clip_s": heard.seconds,
        "extract_s": extracted,
        "first_s": first,
        "again_s": again,
        "preset_s": preset,
        "ratio": again / preset,
    }


__all__ = ["clone_round"]
