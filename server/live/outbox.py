"""What leaves on one socket: in order, through one writer, bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from server.live.events import Event, Reply, Sound

MOST_BYTES = 128 * 1024
MOST_REPLIES = 256


class Turn:
    """What a context says until it is cancelled; afterwards nothing of it leaves any more."""

    def __init__(self) -> None:
        self.over = False


class Outbox:
    """Events on their way to one writer; belongs to one event loop.

    Sound waits for room, so that a client who does not read pauses whoever speaks to it. Replies
    never wait; a socket takes no further messages while too many of them do, or too long ones
    (`settled`).
    """

    def __init__(self, most_bytes: int = MOST_BYTES, most_replies: int = MOST_REPLIES) -> None:
        self._most_bytes = most_bytes
        self._most_replies = most_replies
        self._events: deque[tuple[Turn | None, Event]] = deque()
        self._bytes = 0
        self._reply_chars = 0
        self._spoke = 0.0
        self._writing = False
        self._failure: Exception | None = None
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    @property
    def spoke(self) -> float:
        """The event loop's time at which something of a turn left last; now, while more waits."""
        if any(turn is not None for turn, _ in self._events):
            return asyncio.get_running_loop().time()
        return self._spoke

    async def put(self, event: Event, turn: Turn) -> None:
        """Add an event of a turn once there is room; nothing when the turn is over."""
        while self._bytes >= self._most_bytes and not turn.over:
            await self._change()
        if not turn.over:
            self._push(turn, event)

    def post(self, event: Event) -> None:
        """Add a reply at once."""
        self._push(None, event)

    def fail(self, error: Exception) -> None:
        """End the writer with an error: what follows could not be trusted."""
        self._failure = error
        self._filled.set()

    def drop(self, turn: Turn) -> None:
        """End a turn and forget what of it has not left."""
        turn.over = True
        self._events = deque(each for each in self._events if each[0] is not turn)
        self._bytes = sum(_size(event) for _, event in self._events)
        self._emptied.set()

    async def settled(self) -> None:
        """Wait until a message may be answered again."""
        while len(self._events) >= self._most_replies or self._reply_chars >= self._most_bytes:
            await self._change()

    async def drained(self) -> None:
        """Wait until everything has been written."""
        while self._events or self._writing:
            await self._change()

    async def run(self, write: Callable[[Event], Awaitable[None]]) -> None:
        """Write events one after the other until cancelled; raises what `write` raises, and what
        `fail` was told."""
        while True:
            while not self._events and self._failure is None:
                self._filled.clear()
                await self._filled.wait()
            if self._failure is not None:
                raise self._failure
            turn, event = self._events[0]
            self._writing = True
            await write(event)
            self._writing = False
            if turn is not None:
                self._spoke = asyncio.get_running_loop().time()
            # A turn that was dropped meanwhile took its events along.
            if self._events and self._events[0][1] is event:
                self._events.popleft()
                self._bytes -= _size(event)
                self._reply_chars -= _chars(event)
            self._emptied.set()

    def _push(self, turn: Turn | None, event: Event) -> None:
        self._events.append((turn, event))
        self._bytes += _size(event)
        self._reply_chars += _chars(event)
        self._filled.set()

    async def _change(self) -> None:
        self._emptied.clear()
        await self._emptied.wait()


def _size(event: Event) -> int:
    return len(event.data) if isinstance(event, Sound) else 0


def _chars(event: Event) -> int:
    return len(event.text) if isinstance(event, Reply) else 0


__all__ = ["MOST_BYTES", "MOST_REPLIES", "Outbox", "Turn"]
