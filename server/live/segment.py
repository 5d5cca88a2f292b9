"""One segment of what a context says: its text, the streams that speak it, and its container."""

from __future__ import annotations

import asyncio
import time
from asyncio import to_thread
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from engine import (
    Audio,
    EngineError,
    Finished,
    InvalidRequest,
    LiveStream,
    Overloaded,
    Segments,
    SpeechRequest,
    Stream,
    Utterance,
)
from server.audio.sound import Shape, SoundMaker

# Once so much of an utterance's room is taken, the next sentence begins another one.
_ENOUGH = 0.5
# Seconds after which an engine that had no room for the rest of a text is asked again.
_AGAIN_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How a context speaks.

    Args:
        request: voice and everything else but the text.
        granularity: "sentence" or "clause" for a segment each; "none" for one utterance that is
            fed text as it comes.
        streams: sound is sent while it is made; False sends each segment whole.
        timeout_s: seconds a segment may take from its first word on; None is the server's choice.
    """

    request: SpeechRequest
    shape: Shape
    granularity: str = "none"
    streams: bool = True
    timeout_s: float | None = None


class Mouth(Protocol):
    """What speaks: the engine, for one caller; both raise what the engine refuses. Without a
    `timeout_s` the server's holds."""

    def speak(self, request: SpeechRequest, timeout_s: float | None) -> Stream | Utterance: ...

    def open(self, request: SpeechRequest, timeout_s: float | None) -> LiveStream: ...

    def heard(self, audio: Audio) -> None:
        """Book sound that goes to the listener."""

    def finished(self, finished: Finished) -> None:
        """Book an utterance that has ended."""


class Segment:
    """Read `sound` once; text may be added meanwhile where the manner allows it.

    Text that does not fit the utterance which is spoken waits; the engine gets the next piece of
    it once that utterance has been generated, so that a segment has one place there.
    """

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
        self._live: LiveStream | None = None  # takes text
        self._newest: LiveStream | None = None
        self._waiting: deque[tuple[str, bool]] = deque()  # text, and whether a sentence begins
        self._sentences = Segments("sentence")
        self._began: float | None = None
        self._complete = False
        self._changed = asyncio.Event()

    @property
    def submitted(self) -> bool:
        """The engine knows of it, or has refused it."""
        return bool(self.sample_rate) or self.error is not None

    def submit(self) -> None:
        """Let the engine have it as a whole, or what is there of a text that was held."""
        if self._waiting:
            # A refusal is left for its own turn.
            with suppress(EngineError):
                self._feed()
            return
        self._complete = True
        try:
            request = replace(self._manner.request, text=self.text)
            self._take(self._mouth.speak(request, self._left_s()))
        except EngineError as error:
            self._fail(error)

    def hold(self, text: str) -> None:
        """Add text that waits, and what is written behind it too, until it is submitted."""
        self._waiting.extend(self._cut(text))
        self.text += text

    def write(self, text: str) -> None:
        """Add text to an utterance that is being spoken; raises what the engine refuses, and then
        nothing of the text is taken."""
        if self._waiting and self._newest is None:
            self.hold(text)
            return
        self._waiting.extend(self._cut(text))
        try:
            self._feed()
        except EngineError:
            if self._live is not None or self._newest is None:
                self._waiting.clear()
                raise
            # No room for the next utterance: whoever reads asks again.
            self._changed.set()
        self.text += text

    def end(self) -> None:
        """No more text comes."""
        self._complete = True
        self._close_live()
        self._changed.set()

    def cancel(self) -> None:
        """Stop what is spoken of it."""
        self._complete = True
        self._waiting.clear()
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
                pcm = audio.pcm
                data = maker.write(pcm) if maker.is_cheap else await to_thread(maker.write, pcm)
                if data:
                    yield data
            if maker is not None:
                rest, maker = await to_thread(maker.finish), None
                if rest:
                    yield rest
        finally:
            self.cancel()
            if maker is not None:
                asyncio.get_running_loop().run_in_executor(None, maker.close)

    def _cut(self, text: str) -> Iterator[tuple[str, bool]]:
        """The text, cut where a sentence begins."""
        at = -len(self._sentences.tail)
        begins = [at := at + len(sentence) for sentence in self._sentences.push(text)]
        cuts = sorted({0, *(place for place in begins if place > 0), len(text)})
        return ((text[start:end], start in begins) for start, end in pairwise(cuts))

    def _feed(self) -> None:
        """Hand on the text that waits as far as one utterance takes it; raises what the engine
        refuses."""
        while self._waiting:
            text, begins = self._waiting[0]
            if self._append(text, begins):
                self._waiting.popleft()
            elif self._newest is not None and not self._newest.ended:
                return
            else:
                self._begin(text)
        if self._complete:
            self._close_live()

    def _append(self, text: str, begins: bool) -> bool:
        live = self._live
        if live is None:
            return False
        full = live.tokens > _ENOUGH * live.limit
        if not (live.ended or (full and begins and speakable(text))):
            with suppress(InvalidRequest):
                live.append(text)
                return True
        self._close_live()
        return False

    def _begin(self, text: str) -> None:
        """Begin another utterance with the text that waits first, or divide it."""
        live = None
        if speakable(text):
            try:
                request = replace(self._manner.request, text=text)
                live = self._mouth.open(request, self._left_s())
            except InvalidRequest as error:
                first, rest = _halved(text)
                if error.field != "text" or not rest:
                    raise
                self._waiting[0] = rest, False
                self._waiting.appendleft((first, False))
                return
        self._waiting.popleft()
        if live is not None:
            self._live = self._newest = live
            self._take(live)

    def _close_live(self) -> None:
        live, self._live = self._live, None
        try:
            # What has failed or ended by itself is told by its stream.
            if live is not None:
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

    def _left_s(self) -> float | None:
        if self._manner.timeout_s is None:
            return None
        now = time.monotonic()
        self._began = self._began or now
        return max(self._began + self._manner.timeout_s - now, 0.001)

    async def _audio(self) -> AsyncIterator[Audio]:
        while await self._more():
            async for item in self._streams[0]:
                if self._waiting:
                    self.submit()
                if isinstance(item, Audio):
                    yield item
                else:
                    self.finished = item
                    self._mouth.finished(item)
            self._streams.popleft()
        if self.error is not None:
            raise self.error

    async def _more(self) -> bool:
        """Wait for something to read; False when nothing comes any more."""
        while not self._streams:
            again_s = None
            try:
                self._feed()
            except Overloaded as error:
                # What was taken is spoken, if later.
                again_s = min(max(error.retry_after_s, _AGAIN_S[0]), _AGAIN_S[1])
            except EngineError as error:
                self._waiting.clear()
                self._fail(error)
            if not (self._streams or self._waiting) and (self._complete or self.error is not None):
                return False
            if not self._streams:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(again_s):
                        await self._changed.wait()
        return True


def speakable(text: str) -> bool:
    """Whether there is a letter or digit in `text`."""
    return any(character.isalnum() for character in text)


def _halved(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    space = text.rfind(" ", 1, middle) + 1
    return text[: space or middle], text[space or middle :]


__all__ = ["Manner", "Mouth", "Segment", "speakable"]
