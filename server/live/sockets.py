"""A WebSocket on which contexts talk: one reader, one writer, one end, whatever the dialect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from server.keys import KEY_PROTOCOL
from server.live.events import Event
from server.live.outbox import Outbox

NORMAL, NOT_TEXT, POLICY = 1000, 1003, 1008


class Close(Exception):
    """The socket is to be closed, after what waits to leave."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that nothing is spoken and no message comes, and characters that may wait."""

    idle_s: float
    most_chars: int


class Dialect(Protocol):
    """What messages and events look like, and what contexts there are."""

    @property
    def patience_s(self) -> float:
        """Seconds the next message may take, from the last one or from the end of speech."""

    @property
    def speaking(self) -> bool:
        """Something is still to be said."""

    async def receive(self, message: str) -> None:
        """Do what a message asks for; raises `Close`."""

    def frames(self, event: Event) -> Iterator[str | bytes]:
        """The frames of an event; raises `Close` after the last one of a socket."""

    def late(self) -> Close:
        """Say that no message came in time."""

    async def aclose(self) -> None:
        """Let go of all contexts."""


async def converse(
    websocket: WebSocket, dialect: Dialect, outbox: Outbox, send_timeout_s: float
) -> None:
    """Serve an accepted socket until either side ends it; frees everything.

    Raises:
        Exception: a fault of ours; the socket is still open.
    """

    async def write(event: Event) -> None:
        for frame in dialect.frames(event):
            async with asyncio.timeout(send_timeout_s):
                await _send(websocket, frame)

    reader = asyncio.create_task(_read(websocket, dialect, outbox))
    writer = asyncio.create_task(outbox.run(write))
    try:
        await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if reader.done() and not writer.done():
                raise await _ended(reader, writer, outbox)
            await writer
        except Close as close:
            async with asyncio.timeout(send_timeout_s):
                await websocket.close(close.code, close.reason)
    except TimeoutError:
        # Nothing can be said to who does not read; the connection is cut.
        return
    except (WebSocketDisconnect, OSError):
        return
    finally:
        await _stop(reader, writer)
        await dialect.aclose()


def chosen_protocol(offered: list[str]) -> str | None:
    """The subprotocol to answer with: OpenAI's, or the first that carries no key."""
    if "realtime" in offered:
        return "realtime"
    return next((each for each in offered if not each.startswith(KEY_PROTOCOL)), None)


async def _read(websocket: WebSocket, dialect: Dialect, outbox: Outbox) -> None:
    while True:
        # Who sends and does not read is not read either.
        await outbox.settled()
        message = await _next(websocket, dialect, outbox)
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code") or 1005)
        if (text := message.get("text")) is None:
            raise Close(NOT_TEXT, "messages are JSON in text frames")
        await dialect.receive(text)


async def _next(websocket: WebSocket, dialect: Dialect, outbox: Outbox) -> Any:
    clock = asyncio.get_running_loop().time
    heard = clock()
    receiving = asyncio.ensure_future(websocket.receive())
    try:
        while True:
            quiet = clock() if dialect.speaking else max(heard, outbox.spoke)
            if (left_s := quiet + dialect.patience_s - clock()) <= 0:
                raise dialect.late()
            done, _ = await asyncio.wait({receiving}, timeout=left_s)
            if done:
                return receiving.result()
    finally:
        receiving.cancel()


async def _ended(reader: asyncio.Task[None], writer: asyncio.Task[None], outbox: Outbox) -> Close:
    """How the reader wants the socket closed, once what waits has left; raises other ends."""
    try:
        await reader
    except Close as close:
        drained = asyncio.ensure_future(outbox.drained())
        await asyncio.wait({drained, writer}, return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        if writer.done():
            await writer
        return close
    raise AssertionError("a reader ends by an exception only")


async def _send(websocket: WebSocket, frame: str | bytes) -> None:
    if isinstance(frame, bytes):
        await websocket.send_bytes(frame)
    else:
        await websocket.send_text(frame)


async def _stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
        # Whatever one of them has failed with was raised before, or comes of the other's end.
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


__all__ = [
    "NORMAL",
    "NOT_TEXT",
    "POLICY",
    "Close",
    "Dialect",
    "Limits",
    "chosen_protocol",
    "converse",
]
