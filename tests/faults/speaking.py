"""Asking a tiny engine for speech, and checking that nothing is held afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import engine
from engine.stream import Item
from tests.waiting import eventually, promptly

FRAME_BYTES = 1920 * 4  # one frame of F32 sound: a stream bounded by it is full after one


def ask(text: str = "Hello there.", frames: int = 4, seed: int = 0, **fields: Any) -> Any:
    """A request for exactly `frames` frames: the tiny models never stop by themselves."""
    sampling = engine.Sampling(seed=seed, max_new_tokens=frames)
    return engine.SpeechRequest(text, sampling=sampling, **fields)


def read(stream: Any) -> list[Item]:
    """Everything a stream or utterance has to say; raises its error."""
    return promptly(lambda: list(stream))


def sound(items: list[Item]) -> npt.NDArray[np.float32]:
    """The samples of all `Audio` items, checked to follow each other without a gap."""
    audio = [item for item in items if isinstance(item, engine.Audio)]
    ends = np.cumsum([0, *(len(item.pcm) // 1920 for item in audio)])
    assert [item.first_frame for item in audio] == ends[:-1].tolist()
    return np.concatenate([item.pcm for item in audio])


def solo(speaker: engine.Engine, request: engine.SpeechRequest) -> npt.NDArray[np.float32]:
    """The sound of a request that has the engine to itself."""
    return sound(read(speaker.submit(request)))


def same(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> bool:
    return left.shape == right.shape and bool(np.abs(left - right).max() <= 1e-4)


def failure(stream: Any) -> engine.EngineError:
    """The error a stream ends with."""
    try:
        read(stream)
    except engine.EngineError as error:
        return error
    raise AssertionError("the stream ended without an error")


def balanced(speaker: engine.Engine) -> bool:
    """Whether the engine comes to hold nothing: no slot, row, lane, permit or queue entry."""

    def idle() -> bool:
        books = promptly(speaker.books)
        return speaker.in_flight == 0 and all(each.balanced for each in books)

    return eventually(idle)


def paused(speaker: engine.Engine, stream: engine.Stream) -> bool:
    """Wait until a stream nobody reads is full and its slot is paused."""
    return eventually(lambda: stream.full and not promptly(lambda: speaker.call(busy(speaker))))


def busy(speaker: engine.Engine) -> Any:
    return lambda: any(runner.busy for runner in speaker._runners)
