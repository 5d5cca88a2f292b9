"""A runner stepped by hand, so that tests decide who arrives before which frame."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np

from engine.catalog import Catalog
from engine.config import EngineConfig, ModelFiles
from engine.gguf.spec import read_model_spec
from engine.request import SpeechRequest
from engine.stream import Audio, Finished, Stream
from engine.tts.intake import Envelope, Intake
from engine.tts.load import load_intake, load_runner
from engine.tts.runner import Runner
from engine.tts.slot import Entry


class Bench:
    """One model's runner and intake. `codes` holds the frames drawn, by seed."""

    def __init__(self, files: ModelFiles, **settings) -> None:
        fixed = {
            "slots": 4,
            "kv_positions": 256,
            "nan_fill": True,
            "device": "cpu",
            "kernels": "plain",
        }
        self.config = EngineConfig(**{**fixed, **settings})
        spec = read_model_spec(files.talker, files.codec)
        self.runner: Runner = load_runner(spec, self.config)
        self.generator = self.runner._generator
        self.vocoder = self.runner._vocoder
        # Time stands still: flushes follow the ramp, however busy the machine is.
        self.now = time.monotonic()
        self.runner._clock = self.runner._filling._clock = lambda: self.now
        self.intake: Intake = load_intake(spec, Catalog([spec]), self.config)
        self.codes: dict[int, list[list[int]]] = {}
        self._frame = self.generator.frame
        self.generator.frame = self._watched

    def entry(self, request: SpeechRequest, name: str = "job", **envelope) -> Entry:
        return self.intake.entry(request, Envelope(name, **envelope), lambda: None, lambda: None)

    def admit(self, request: SpeechRequest, name: str = "job", **envelope) -> Entry:
        entry = self.entry(request, name, **envelope)
        self.runner.admit(entry, self.now)
        return entry

    def run(
        self, requests: Sequence[SpeechRequest], arrivals: Sequence[int]
    ) -> dict[int, np.ndarray]:
        """Admit each request before its step and run to the end; the sound by seed."""
        self.codes.clear()
        waiting = sorted(zip(arrivals, range(len(requests)), strict=True))
        streams: dict[int, Stream] = {}
        for step in itertools.count():
            while waiting and waiting[0][0] <= step and self.runner.free:
                request = requests[waiting.pop(0)[1]]
                streams[request.sampling.seed] = self.admit(request).stream
            if not waiting and not self.runner.busy:
                break
            self.step()
        assert self.runner.books().balanced
        return {seed: sound(stream) for seed, stream in streams.items()}

    def step(self) -> None:
        self.runner.step(self.now)

    def finish(self) -> None:
        """Step until nothing would change any more."""
        while self.runner.busy:
            self.step()

    def _watched(self, slots):
        made = self._frame(slots)
        for slot in slots:
            if slot not in made.broken and slot not in made.stopped:
                drawn = self.codes.setdefault(slot.entry.sampling.seed, [])
                drawn.append(slot.pending[-1].tolist())
        return made


def sound(stream: Stream) -> np.ndarray:
    """All samples of a stream that ends cleanly."""
    items = list(stream)
    assert isinstance(items[-1], Finished)
    return np.concatenate([item.pcm for item in items if isinstance(item, Audio)])
