"""One segment of what a context says: its text, the streams that speak it, and its container."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine import (
    Audio,
    EngineError,
    Finished,
    InvalidRequest,
    LiveStream,
    Segments,
    SpeechRequest,
    Stream,
    Utterance,
)
from server.audio.sound import Shape, SoundMaker

F32 = npt.NDArray[np.float32]

# Once so much of an utterance's room is taken, the next sentence begins another one.
_ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Manner:
    """How a context speaks.

    Args:
        request: voice and everything else but the text.
        granularity: "sentence" or "clause" for a segment each; "none" for one utterance that is
            fed text as it comes.
        streams: sound is sent while it is made; False sends each segment whole.
    """

    request: SpeechRequest
    shape: Shape
    granularity: str = "none"
    streams: bool = True


class Mouth(Protocol):
    """What speaks: the engine, for one caller; both raise what the engine refuses."""

    def speak(self, request: SpeechRequest) -> Stream | Utterance: ...

    def open(self, request: SpeechRequest) -> LiveStream: ...

    def heard(self, audio: Audio) -> None:
        """Book sound that goes to the listener."""

    def finished(self, finished: Finished) -> None:
        """Book an utterance that has ended."""


class Segment:
    """Read `sound` once; text may be added meanwhile where the manner allows it."""

    def __init__(self, manner: Manner, mouth: Mouth, utterance: int, index: int) -> None:
        self.utterance = utterance
        self.index = index
        self.text = ""
        self.error: EngineError | None = None
        self.finished: Finished | None = None
        self.warnings: list[str] = []
        self.sample_rate = 0
        self.shape = manner.shape
        self._manner = manner
        self._mouth = mouth
        self._streams: deque[Stream | Utterance | LiveStream] = deque()
        self._live: LiveStream | None = None
        self._sentences = Segments("sentence")
        self._complete = False
        self._changed = asyncio.Event()

    @property
    def submitted(self) -> bool:
        """The engine knows of it, or has refused it."""
        return bool(self.sample_rate) or self.error is not None

    def say(self, text: str) -> None:
        """Submit it as a whole."""
        self._complete = True
        try:
            self._take(self._mouth.speak(replace(self._manner.request, text=text)))
        except EngineError as error:
            self._fail(error)

    def write(self, text: str) -> None:
        """Add text to an utterance that is being spoken; raises what the engine refuses."""
        ended = self._sentences.push(text)
        tail = self._sentences.tail if ended else text
        behind = len(text) - len(tail)
        for part in (text[:behind], tail) if ended else (text,):
            self._write(part, begins=bool(ended) and part is tail)
        self.text += text

    def end(self) -> None:
        """No more text comes."""
        self._complete = True
        self._close_live()
        self._changed.set()

    def cancel(self) -> None:
        """Stop what is spoken of it."""
        self._complete = True
        for stream in self._streams:
            stream.cancel()
        self._changed.set()

    async def sound(self) -> AsyncGenerator[bytes, None]:
        """Slices of its container; raises the `EngineError` it fails with."""
        maker: SoundMaker | None = None
        try:
            async for audio in self._audio():
                if maker is None:
                    whole = not self._manner.streams
                    maker = SoundMaker(self._manner.shape, self.sample_rate, whole=whole)
                self._mouth.heard(audio)
                if data := await _off_loop(maker, audio.pcm):
                    yield data
            if maker is not None:
                rest = await asyncio.to_thread(maker.finish)
                maker = None
                if rest:
                    yield rest
        finally:
            self.cancel()
            if maker is not None:
                asyncio.get_running_loop().run_in_executor(None, maker.close)

    def _write(self, text: str, begins: bool) -> None:
        live = self._live
        full = live is not None and live.tokens > _ENOUGH * live.limit
        if live is not None and (live.ended or (full and begins and speakable(text))):
            self._close_live()
        if self._live is not None:
            try:
                self._live.append(text)
                return
            except InvalidRequest:
                self._close_live()
        if speakable(text):
            self._begin(text)

    def _begin(self, text: str) -> None:
        try:
            self._live = self._mouth.open(replace(self._manner.request, text=text))
        except InvalidRequest as error:
            first, rest = _halved(text)
            if error.field != "text" or not rest:
                raise
            self._begin(first)
            self._close_live()
            self._begin(rest)
        else:
            self._take(self._live)

    def _close_live(self) -> None:
        live, self._live = self._live, None
        if live is None:
            return
        try:
            # What has failed or ended by itself is told by its stream.
            live.end()
        except EngineError as error:
            self.error = self.error or error

    def _take(self, stream: Stream | Utterance | LiveStream) -> None:
        self.sample_rate = stream.sample_rate
        self.warnings += [each for each in stream.warnings if each not in self.warnings]
        self._streams.append(stream)
        self._changed.set()

    def _fail(self, error: EngineError) -> None:
        self.error = error
        self._changed.set()

    async def _audio(self) -> AsyncIterator[Audio]:
        while True:
            while not self._streams and not self._complete and self.error is None:
                self._changed.clear()
                await self._changed.wait()
            if not self._streams:
                break
            async for item in self._streams[0]:
                if isinstance(item, Audio):
                    yield item
                else:
                    self.finished = item
                    self._mouth.finished(item)
            self._streams.popleft()
        if self.error is not None:
            raise self.error


async def _off_loop(maker: SoundMaker, pcm: F32) -> bytes:
    return maker.write(pcm) if maker.is_cheap else await asyncio.to_thread(maker.write, pcm)


def speakable(text: str) -> bool:
    """Whether there is a letter or digit in `text`."""
    return any(character.isalnum() for character in text)


def _halved(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    space = text.rfind(" ", 1, middle) + 1
    return text[: space or middle], text[space or middle :]


__all__ = ["Manner", "Mouth", "Segment", "speakable"]
