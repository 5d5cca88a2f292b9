"""A context over a fake engine, and what comes out of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import engine
from server.audio.formats import FORMATS
from server.audio.sound import Shape
from server.live.contexts import Context
from server.live.events import Cancelled, Ended, Event, Flushed, Sound, Started
from server.live.outbox import Outbox
from server.live.segment import Manner
from tests.fakes import FakeEngine
from tests.waiting import PATIENCE_S

PCM = Shape(FORMATS["pcm"])


class FakeMouth:
    """Passes on to a fake engine, and counts."""

    def __init__(self, fake: FakeEngine) -> None:
        self.fake = fake
        self.samples = 0
        self.ends: list[engine.Finished] = []

    def speak(self, request: engine.SpeechRequest, timeout_s: float | None) -> engine.Stream:
        return self.fake.speak(request, timeout_s=timeout_s)

    def open(self, request: engine.SpeechRequest, timeout_s: float | None) -> engine.LiveStream:
        return self.fake.open(request, timeout_s=timeout_s)  # type: ignore[return-value]

    def heard(self, audio: engine.Audio) -> None:
        self.samples += audio.pcm.size

    def finished(self, finished: engine.Finished) -> None:
        self.ends.append(finished)


class Talk:
    """A context, its outbox and the events that were written; `reading` cleared stops the
    writer."""

    def __init__(self, fake: FakeEngine, granularity: str, most_chars: int = 2000) -> None:
        self.fake = fake
        self.mouth = FakeMouth(fake)
        self.outbox = Outbox(most_bytes=4 * 3840)
        manner = Manner(engine.SpeechRequest(""), PCM, granularity)
        self.context = Context("c", self.mouth, manner, self.outbox, most_chars=most_chars)
        self.events: list[Event] = []
        self.reading = asyncio.Event()
        self.reading.set()

    async def write(self, event: Event) -> None:
        await self.reading.wait()
        self.events.append(event)

    async def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, self.shape()
            assert not self.context.player.done()
            await asyncio.sleep(0.001)

    async def settled(self) -> None:
        """Everything that was asked for is written."""
        await self.until(lambda: not self.context.speaking)
        await self.outbox.drained()

    def shape(self) -> str:
        """The events in short: `[` and `]` around a segment's `.` slices, `|` a flush, `!` a
        segment's error, `x` a cancel."""
        return "".join(map(_sign, self.events))


@contextlib.asynccontextmanager
async def talk(fake: FakeEngine, granularity: str, **limits: int) -> AsyncIterator[Talk]:
    talking = Talk(fake, granularity, **limits)
    writer = asyncio.create_task(talking.outbox.run(talking.write))
    try:
        yield talking
    finally:
        await talking.context.aclose()
        writer.cancel()
    assert fake.active == 0


def _sign(event: Event) -> str:
    match event:
        case Started():
            return "["
        case Sound():
            return "."
        case Ended(error=None):
            return "]"
        case Ended():
            return "!"
        case Flushed():
            return "|"
        case Cancelled():
            return "x"
    raise AssertionError(event)


__all__ = ["PCM", "FakeMouth", "Talk", "talk"]
