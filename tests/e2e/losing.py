"""`framecast serve` on a device that is lost while it makes the frame after a request's 40th."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import engine.tts.generator
from engine.tts.slot import Slot
from server.cli import main

GOOD_FRAMES = 40


class LosingGenerator(engine.tts.generator.Generator):
    def decode(self, slots: Sequence[Slot]) -> None:
        if any(slot.frames >= GOOD_FRAMES for slot in slots):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        super().decode(slots)


if __name__ == "__main__":
    import engine.tts.load

    engine.tts.load.Generator = LosingGenerator  # type: ignore[misc]
    sys.exit(main())
