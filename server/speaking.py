"""One request on its way from the engine to a reply: started, read, booked, let go of."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from starlette.types import Receive

from engine import Audio, EngineError, Finished, GenerationFailed, ModelInfo, Stream, Utterance
from server.audio.sound import Shape, SoundMaker
from server.dependencies import RequestRecord
from server.metrics import Metrics

F32 = npt.NDArray[np.float32]


class Reader:
    """Reads a stream item by item and can tell whether the next one is there already."""

    def __init__(self, stream: Stream | Utterance) -> None:
        self._stream = stream
        self._next: asyncio.Task[Audio | Finished] | None = None

    async def read(self) -> Audio | Finished:
        """The next item, waiting for it; raises the stream's error at a failed end."""
        task, self._next = self._next, None
        return await (task or self._stream.read())

    async def poll(self) -> Audio | Finished | None:
        """The next item if no waiting is needed, else None; loses nothing."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._stream.read())
            await asyncio.sleep(0)
        return await self.read() if self._next.done() else None

    async def close(self) -> None:
        """End the stream and forget what was not read."""
        self._stream.cancel()
        task, self._next = self._next, None
        if task is not None:
            with contextlib.suppress(EngineError):
                await task


@dataclass(slots=True)
class Speech:
    """What to speak and how the listener wants it; `start` submits it to the engine.

    `streams`: the listener wants sound while it is made; `events`: as server-sent events.
    `warnings` are told the listener beside those of the engine; `return_text`: so is the text as
    it is spoken.
    """

    start: Callable[[], Stream | Utterance]
    model: ModelInfo
    shape: Shape
    streams: bool
    events: bool
    send_timeout_s: float
    warnings: tuple[str, ...] = ()
    return_text: bool = False


class Speaking:
    """A speech that was started. Whoever opened it closes it.

    Everything read is booked in the request's record and in the metrics.
    """

    def __init__(
        self, stream: Stream | Utterance, speech: Speech, record: RequestRecord, metrics: Metrics
    ) -> None:
        self.stream = stream
        self.speech = speech
        self.record = record
        self.metrics = metrics
        self.rate = stream.sample_rate
        self._reader = Reader(stream)
        self._maker: SoundMaker | None = None

    @classmethod
    async def start(cls, speech: Speech, record: RequestRecord, metrics: Metrics) -> Speaking:
        """Submit a speech to the engine; raises what the engine refuses it with."""
        record.model = speech.model.name
        record.submitted = time.monotonic()
        # Splitting and tokenising a long text takes a while: not on the loop.
        starting = asyncio.ensure_future(asyncio.to_thread(speech.start))
        try:
            stream = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_forsake)
            raise
        record.seed = stream.seed
        return cls(stream, speech, record, metrics)

    @property
    def spoken_text(self) -> str | None:
        """The text as it is spoken, if the listener asked for it."""
        return self.stream.spoken_text if self.speech.return_text else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the listener should know: of the order, and of the engine."""
        return (*self.speech.warnings, *self.stream.warnings)

    async def first(self) -> F32:
        """The first sound; `GenerationFailed` when there is none."""
        audio = await self._reader.read()
        while isinstance(audio, Audio) and not audio.pcm.size:
            audio = await self._reader.read()
        if isinstance(audio, Finished):
            raise GenerationFailed("the model produced no audio")
        if self.record.first_audio_s is None:
            self.record.first_audio_s = time.monotonic() - self.record.started
            self.metrics.first_audio.observe(self.record.first_audio_s)
        return self._book(audio)

    async def next(self) -> F32 | Finished:
        """More sound, or the end; raises the error of a failed end."""
        item = await self._reader.read()
        return self._book(item) if isinstance(item, Audio) else self._book_end(item)

    async def next_if_there(self) -> F32 | Finished | None:
        """Like `next`, but None when there is nothing yet."""
        item = await self._reader.poll()
        if item is None:
            return None
        return self._book(item) if isinstance(item, Audio) else self._book_end(item)

    async def make(self, pcm: F32) -> bytes:
        """What of the streamed container is ready, with this sound."""
        maker = self._opened(whole=False)
        return maker.write(pcm) if maker.is_cheap else await asyncio.to_thread(maker.write, pcm)

    async def finish(self) -> bytes:
        """The rest of the streamed container."""
        maker, self._maker = self._opened(whole=False), None
        return await asyncio.to_thread(maker.finish)

    async def whole(self, heard: list[F32], end: Finished | None = None) -> tuple[bytes, Finished]:
        """The whole container: of the sound `heard` so far and, unless there was an `end`
        already, of what is still to come, encoded while it is made."""
        started = time.monotonic()
        maker = self._opened(whole=True)
        for pcm in heard:
            await asyncio.to_thread(maker.write, pcm)
        while end is None:
            item = await self.next()
            if isinstance(item, Finished):
                end = item
            else:
                await asyncio.to_thread(maker.write, item)
        self._maker = None
        body = await asyncio.to_thread(maker.finish)
        self.record.encoded = started, time.monotonic()
        return body, end

    async def close(self) -> None:
        """Cancel what still runs and let go of everything; a no-op after a clean end."""
        if self._maker is not None and not self._maker.is_cheap:
            # Nobody waits for it: it may have to wait for a write in another thread.
            asyncio.get_running_loop().run_in_executor(None, self._maker.close)
        self._maker = None
        await self._reader.close()

    def _opened(self, whole: bool) -> SoundMaker:
        if self._maker is None:
            self._maker = SoundMaker(self.speech.shape, self.rate, whole=whole)
        return self._maker

    def _book(self, audio: Audio) -> F32:
        self.metrics.audio_seconds.inc(audio.pcm.size / self.rate)
        self.record.audio_s += audio.pcm.size / self.rate
        frames = audio.pcm.size // self.speech.model.samples_per_frame
        self.record.frames = (self.record.frames or 0) + frames
        return audio.pcm

    def _book_end(self, finished: Finished) -> Finished:
        stats = finished.stats
        self.record.reason = str(finished.reason)
        self.record.stats = stats
        seconds = stats.frames * self.speech.model.samples_per_frame / self.rate
        work = stats.total_s - stats.queue_s
        self.record.real_time_factor = work / seconds if seconds else None
        self.metrics.book_end(stats, self.record.real_time_factor)
        return finished


async def when_gone(receive: Receive, cancel: Callable[[], None]) -> None:
    """Call `cancel` once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel()


def _forsake(starting: asyncio.Future[Stream | Utterance]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()


__all__ = ["Reader", "Speaking", "Speech", "when_gone"]
