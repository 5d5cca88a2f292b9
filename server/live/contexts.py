"""Contexts: who says what, in which order, on one socket. Knows no dialect and no socket.

A context takes text (`append`), says that an utterance is complete (`flush`), takes back what was
not heard yet (`cancel`) and ends (`aclose`). What happens comes out as events of an `Outbox`:

    Started, Sound ..., Ended   for every segment, strictly in order
    Flushed                     once for every flush, after the last sound of its segments
    Cancelled                   once for every cancel; nothing of what was said before follows

Text becomes segments by the manner: one utterance that is fed as text comes, or a segment for
each sentence or clause, of which the next is with the engine before the last is sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, suppress

from engine import EngineError, InvalidRequest, Segments
from server.live.events import Cancelled, Ended, Flushed, Sound, Started
from server.live.outbox import Outbox, Turn
from server.live.segment import Manner, Mouth, Segment, speakable

# Segments the engine has at the same time: the one that is heard, and the next.
_AHEAD = 2


class Context:
    """One line of talk; belongs to one event loop. `append`, `flush` and `cancel` never wait.

    Args:
        id: what its events carry.
        most_chars: characters that may wait to be spoken.
    """

    def __init__(
        self,
        id: str,  # noqa: A002
        mouth: Mouth,
        manner: Manner,
        outbox: Outbox,
        *,
        most_chars: int,
    ) -> None:
        self.id = id
        self._mouth = mouth
        self._manner = manner
        self._outbox = outbox
        self._most_chars = most_chars
        self._turn = Turn()
        self._line: deque[Segment | Flushed] = deque()
        self._writing: Segment | None = None
        self._utterance = 0
        self._count = 0  # segments of the utterance
        self._held = ""  # text of which no segment was made yet
        self._cutter = self._new_cutter()
        self._arrived = asyncio.Event()
        self._spoken = asyncio.Event()
        self._player = asyncio.create_task(self._play())

    @property
    def player(self) -> asyncio.Task[None]:
        """Runs until the end; done before that, it has failed."""
        return self._player

    @property
    def speaking(self) -> bool:
        """Something is still to be said or to be sent."""
        return bool(self._line)

    @property
    def has_text(self) -> bool:
        """An utterance has begun and was not flushed."""
        return bool(self._held or self._count or self._writing)

    @property
    def manner(self) -> Manner:
        """How it speaks; to be changed between utterances only."""
        return self._manner

    @manner.setter
    def manner(self, manner: Manner) -> None:
        assert not self.has_text
        self._manner = manner
        self._cutter = self._new_cutter()

    def append(self, text: str) -> None:
        """Take a piece of text, cut anywhere.

        Raises:
            InvalidRequest: too much of it waits; nothing of it is taken.
            EngineError: the engine refuses the utterance it begins.
        """
        self._check_room(text)
        if self._cutter is None:
            self._write(text)
            return
        for piece in self._cutter.push(text):
            self._add(piece)
        self._held = self._cutter.tail

    def say(self, text: str) -> None:
        """Take a text that is complete in itself: a segment of its own, prepared and spoken as a
        request's text would be, behind what was appended.

        Raises:
            InvalidRequest: too much of it waits; nothing of it is taken.
        """
        self._check_room(text)
        if self._writing is not None:
            self._writing.end()
            self._writing = None
        text, self._held = self._held + text, ""
        self._cutter = self._new_cutter()
        if speakable(text):
            self._add(text)

    def flush(self) -> None:
        """Say that the utterance is complete: one `Flushed` follows its last sound."""
        if self._cutter is not None and speakable(rest := self._cutter.rest()):
            self._add(rest)
        if self._writing is not None:
            self._writing.end()
        self._put(Flushed(self.id, self._utterance, self._count))
        self._begin_utterance()

    def cancel(self) -> None:
        """Take back all that was not heard; one `Cancelled` follows at once."""
        utterance = self._line[0].utterance if self._line else self._utterance
        self._drop()
        self._outbox.post(Cancelled(self.id, utterance))
        if self.has_text:
            self._begin_utterance()

    def withdraw(self) -> None:
        """Take back what was not flushed, without a word; what of it was handed to the writer
        still leaves."""
        for each in self._line:
            if isinstance(each, Segment) and each.utterance == self._utterance:
                each.cancel()
        self._line = deque(each for each in self._line if each.utterance != self._utterance)
        if not self._line:
            self._turn.over = True
            self._turn = Turn()
        self._begin_utterance()

    async def quiet(self) -> None:
        """Wait until all that was flushed is said and handed to the writer."""
        while self._line:
            self._spoken.clear()
            await self._spoken.wait()
        await self._outbox.drained()

    def end(self) -> None:
        """End at once, without a word."""
        self._drop()
        self._player.cancel()

    async def aclose(self) -> None:
        """End at once, and wait until everything is let go of."""
        self.end()
        # What it has failed with is told by the outbox.
        with suppress(asyncio.CancelledError, Exception):
            await self._player

    def _check_room(self, text: str) -> None:
        waiting = [each for each in self._line if isinstance(each, Segment)]
        taken = len(self._held) + sum(len(each.text) for each in waiting)
        if taken + len(text) > self._most_chars:
            raise InvalidRequest(
                f"`text` would come to {taken + len(text)} characters that are not spoken yet; the"
                f" limit is {self._most_chars}",
                "text",
            )

    def _write(self, text: str) -> None:
        if self._writing is not None:
            self._writing.write(text)
        elif speakable(held := self._held + text):
            segment = Segment(self._manner, self._mouth, self._utterance, self._count)
            if sum(isinstance(each, Segment) for each in self._line) < _AHEAD:
                self._open(segment, held)
            else:
                segment.hold(held)
            self._writing = segment
            self._count += 1
            self._held = ""
            self._put(segment)
        else:
            self._held = held

    def _open(self, segment: Segment, text: str) -> None:
        try:
            segment.write(text)
        except EngineError:
            segment.cancel()
            raise

    def _add(self, text: str) -> None:
        segment = Segment(self._manner, self._mouth, self._utterance, self._count)
        segment.text = text.strip()
        self._count += 1
        self._put(segment)

    def _put(self, item: Segment | Flushed) -> None:
        self._line.append(item)
        self._submit_ahead()
        self._arrived.set()

    def _submit_ahead(self) -> None:
        segments = [each for each in self._line if isinstance(each, Segment)]
        for segment in segments[:_AHEAD]:
            if not segment.submitted:
                segment.submit()

    def _begin_utterance(self) -> None:
        self._utterance += 1
        self._count = 0
        self._held = ""
        self._writing = None
        self._cutter = self._new_cutter()

    def _new_cutter(self) -> Segments | None:
        kind = self._manner.granularity
        return None if kind == "none" else Segments(kind)

    def _drop(self) -> None:
        turn, self._turn = self._turn, Turn()
        self._outbox.drop(turn)
        for each in self._line:
            if isinstance(each, Segment):
                each.cancel()
        self._line.clear()

    async def _play(self) -> None:
        try:
            await self._play_all()
        except Exception as error:  # a fault of ours, which must not end in silence
            self._outbox.fail(error)
            raise

    async def _play_all(self) -> None:
        while True:
            while not self._line:
                self._arrived.clear()
                await self._arrived.wait()
            item, turn = self._line[0], self._turn
            if isinstance(item, Segment):
                await self._speak(item, turn)
            else:
                await self._outbox.put(item, turn)
            if self._line and self._line[0] is item:
                self._line.popleft()
                self._submit_ahead()
            self._spoken.set()

    async def _speak(self, segment: Segment, turn: Turn) -> None:
        place = self.id, segment.utterance, segment.index
        size, error = -1, None
        try:
            async with aclosing(segment.sound()) as sound:
                async for data in sound:
                    if size < 0:
                        size = 0
                        await self._start(segment, turn)
                    size += len(data)
                    await self._outbox.put(Sound(self.id, data), turn)
        except EngineError as failure:
            error = failure
        if segment is self._writing:
            self._writing = None
        if size < 0:
            await self._start(segment, turn)
        end = Ended(*place, max(size, 0), segment.finished, error, tuple(segment.warnings))
        await self._outbox.put(end, turn)

    async def _start(self, segment: Segment, turn: Turn) -> None:
        shape, text = segment.shape, segment.text.strip()
        rate = shape.rate(segment.sample_rate)
        event = Started(self.id, segment.utterance, segment.index, text, shape.format.name, rate)
        await self._outbox.put(event, turn)


__all__ = ["Context"]
