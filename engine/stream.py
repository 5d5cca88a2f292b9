"""A stream of typed items from the worker thread to one reader, sync or async.

The worker publishes, the reader iterates; there is exactly one end. The stream is bounded in
bytes: a full stream tells the worker so (the slot is paused) and wakes it again when the reader
has made room. It knows neither the worker nor the runner, only the two callables it was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import Cancelled, EngineError
from engine.request import FinishReason


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """Sound of consecutive frames: `pcm` is F32[samples] in -1..1 at the model's rate."""

    first_frame: int
    pcm: npt.NDArray[np.float32]

    def pcm16(self) -> bytes:
        """The same as little-endian 16-bit samples: x * 32767, rounded and clipped."""
        return to_pcm16(self.pcm)


@dataclass(frozen=True, slots=True)
class Stats:
    """What one utterance took. Times are seconds; `queue_s` counts from submit."""

    frames: int
    seed: int
    queue_s: float = 0.0
    prefill_s: float = 0.0
    first_audio_s: float = 0.0
    total_s: float = 0.0
    talker_s: float = 0.0
    predictor_s: float = 0.0
    codec_s: float = 0.0
    prompt_positions: int = 0
    redraws: int = 0  # parts drawn again because they had run away


@dataclass(frozen=True, slots=True)
class Finished:
    """The clean end of a stream."""

    reason: FinishReason
    stats: Stats


Item = Audio | Finished


def to_pcm16(pcm: npt.NDArray[np.float32]) -> bytes:
    """F32 samples in -1..1 as little-endian 16-bit: x * 32767, rounded and clipped."""
    scaled = np.rint(pcm.astype(np.float32) * np.float32(32767.0))
    samples: npt.NDArray[np.int16] = np.clip(scaled, -32768, 32767).astype("<i2")
    return samples.tobytes()


class Readable:
    """Items one after the other, up to a `Finished` or an error: for sync and async readers.

    `spoken_text` is the text as it is said, where the engine prepared it (`Engine.speak`).
    """

    spoken_text = ""

    def get(self) -> Item:
        """The next item, blocking the thread; raises the error at a failed end."""
        raise NotImplementedError

    async def read(self) -> Item:
        """Like `get`, waiting on the event loop."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Item]:
        while True:
            item = self.get()
            yield item
            if isinstance(item, Finished):
                return

    async def __aiter__(self) -> AsyncIterator[Item]:
        while True:
            item = await self.read()
            yield item
            if isinstance(item, Finished):
                return


class Stream(Readable):
    """One utterance on its way to one reader.

    Iterate it (`for` or `async for`): `Audio` items, then one `Finished`, or an `EngineError`
    is raised. `cancel()` may be called from any thread, at any time, any number of times.
    """

    def __init__(
        self,
        id: str,  # noqa: A002
        *,
        seed: int,
        sample_rate: int,
        max_bytes: int,
        on_cancel: Callable[[], None] = lambda: None,
        on_drained: Callable[[], None] = lambda: None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.id = id
        self.seed = seed
        self.sample_rate = sample_rate
        self.warnings = warnings
        self._max_bytes = max_bytes
        self._on_cancel = on_cancel
        self._on_drained = on_drained
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._was_full = False
        self._error: EngineError | None = None
        self._ended = False
        self._last_read = time.monotonic()
        self._changed = threading.Condition()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    # The worker's side.

    def publish(self, audio: Audio) -> None:
        """Append sound. Ignored after the end, so a late flush cannot follow a cancel."""
        with self._changed:
            if self._ended:
                return
            if not self._items:
                self._last_read = time.monotonic()
            self._items.append(audio)
            self._bytes += audio.pcm.nbytes
            self._was_full = self._was_full or self.full
            self._wake()

    def finish(self, finished: Finished) -> bool:
        """End cleanly; False when the stream had already ended."""
        with self._changed:
            if self._ended:
                return False
            self._ended = True
            self._items.append(finished)
            self._wake()
            return True

    def fail(self, error: EngineError) -> bool:
        """End with an error; what was published before is still delivered."""
        with self._changed:
            if self._ended:
                return False
            self._ended = True
            self._error = error
            self._wake()
            return True

    @property
    def full(self) -> bool:
        return self._bytes >= self._max_bytes

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def failed(self) -> bool:
        return self._error is not None

    @property
    def error(self) -> EngineError | None:
        """What it has failed with."""
        return self._error

    def unread_for(self, now: float) -> float:
        """Seconds since the reader last took an item while there was one to take."""
        with self._changed:
            return now - self._last_read if self._items else 0.0

    # The reader's side.

    def cancel(self) -> None:
        """Stop the utterance and drop what was not read; a no-op after the end."""
        self.abort(Cancelled("the request was cancelled"))

    def abort(self, error: EngineError) -> None:
        """Like `cancel`, with another error."""
        if not self.fail(error):
            return
        with self._changed:
            self._items.clear()
            self._bytes = 0
        self._on_cancel()

    def get(self) -> Item:
        """Like `read`, blocking the thread."""
        with self._changed:
            self._changed.wait_for(self._readable)
            item = self._take()
        self._after_take()
        return item

    async def read(self) -> Item:
        """The next item, waiting for it; raises the stream's error at a failed end."""
        while True:
            with self._changed:
                if self._readable():
                    item = self._take()
                    break
                loop = asyncio.get_running_loop()
                future: asyncio.Future[None] = loop.create_future()
                self._waiter = (loop, future)
            await future
        self._after_take()
        return item

    def _readable(self) -> bool:
        return bool(self._items) or self._ended

    def _take(self) -> Item:
        if not self._items:
            raise self._error or Cancelled("the stream was read past its end")
        item = self._items.popleft()
        if isinstance(item, Audio):
            self._bytes -= item.pcm.nbytes
        self._last_read = time.monotonic()
        return item

    def _after_take(self) -> None:
        # Half empty, not merely below the mark: the worker is woken once, not per item.
        if self._was_full and self._bytes <= self._max_bytes // 2:
            self._was_full = False
            self._on_drained()

    def _wake(self) -> None:
        self._changed.notify_all()
        if self._waiter is not None:
            loop, future = self._waiter
            self._waiter = None
            # A closed loop means that nobody is waiting any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


__all__ = ["Audio", "Finished", "Item", "Readable", "Stats", "Stream", "to_pcm16"]
