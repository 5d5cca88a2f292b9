"""A crowd on WebSockets: clients that write words, pause, flood, talk nonsense and leave."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

WORDS = ("The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog.")
FAULT = 1011  # the close code of a server that failed
PATIENCE_S = 120.0

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one dialect's clients send, and how they know the end of an utterance.

    `opening` is sent once, `more` per piece of text. `cancels` is empty where there is no cancel.
    `ends` and `cancelled` look at a message of the server.
    """

    path: str
    opening: tuple[Message, ...]
    more: Callable[[str], Message]
    flush: tuple[Message, ...]
    cancels: tuple[Message, ...]
    ends: Callable[[Message], bool]
    cancelled: Callable[[Message], bool]


VLLM_OMNI = Dialect(
    path="/v1/audio/speech/stream",
    opening=(
        {
            "type": "session.config",
            "response_format": "pcm",
            "stream_audio": True,
            "max_new_tokens": 12,
        },
    ),
    more=lambda text: {"type": "input.text", "text": text},
    flush=({"type": "input.done"},),
    cancels=({"type": "input.cancel"},),
    ends=lambda message: message.get("type") == "session.done",
    cancelled=lambda message: message.get("type") == "session.cancelled",
)
DEEPGRAM = Dialect(
    path="/v1/speak?encoding=linear16&sample_rate=24000",
    opening=(),
    more=lambda text: {"type": "Speak", "text": text},
    flush=({"type": "Flush"},),
    cancels=({"type": "Clear"},),
    ends=lambda message: message.get("type") == "Flushed",
    cancelled=lambda message: message.get("type") == "Cleared",
)
ELEVENLABS = Dialect(
    path="/v1/text-to-speech/alloy/multi-stream-input?output_format=pcm_24000",
    opening=(),
    more=lambda text: {"text": text, "context_id": "a"},
    flush=(
        {"text": " ", "context_id": "a", "flush": True},
        {"context_id": "a", "close_context": True},
    ),
    cancels=(),
    ends=lambda message: bool(message.get("isFinal")),
    cancelled=lambda message: False,
)
_CARTESIA = {
    "context_id": "a",
    "model_id": "sonic-3",
    "voice": {"mode": "id", "id": "alloy"},
    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
}
CARTESIA = Dialect(
    path="/tts/websocket",
    opening=(),
    more=lambda text: {**_CARTESIA, "transcript": text, "continue": True},
    flush=({**_CARTESIA, "transcript": "", "continue": False},),
    cancels=({"context_id": "a", "cancel": True},),
    # A message without an id is a text of its own, and ends too.
    ends=lambda message: message.get("type") == "done" and message["context_id"] == "a",
    cancelled=lambda message: message.get("status_code") == 499,
)


DIALECTS = (VLLM_OMNI, DEEPGRAM, ELEVENLABS, CARTESIA)


@dataclass(slots=True)
class Seen:
    """What happened: utterances that ended, cancels that were acknowledged, bytes of sound, and
    how sockets were closed by the server. `odd` holds whatever should not be."""

    ended: int = 0
    cancelled: int = 0
    sound: int = 0
    left: int = 0
    closes: Counter[int] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)


class Talker:
    """One client on one socket after the other."""

    def __init__(self, url: str, dialect: Dialect, number: int, seen: Seen) -> None:
        self._url = url.replace("http", "ws", 1) + dialect.path
        self._dialect = dialect
        self._draw = random.Random(number)
        self._seen = seen

    async def visit(self) -> None:
        """Open a socket, do some things on it, and leave by a close or by vanishing."""
        acts = (self._words, self._pause, self._flood, self._nonsense)
        acts = (*acts, self._interrupt) if self._dialect.cancels else acts
        try:
            async with connect(self._url, open_timeout=PATIENCE_S) as socket:
                for message in self._dialect.opening:
                    await self._send(socket, message)
                for act in self._draw.choices(acts, k=self._draw.randint(1, 3)):
                    await asyncio.wait_for(act(socket), PATIENCE_S)
                if self._draw.random() < 0.3:
                    await self._vanish(socket)
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 1006
            self._seen.closes[code] += 1
            self._seen.odd.append(
                f"{self._dialect.path}: closed by the server with {code}: {closed}"
            )
        except TimeoutError:
            self._seen.odd.append(f"{self._dialect.path}: no end came")

    async def _words(self, socket: ClientConnection) -> None:
        for word in self._draw.sample(WORDS, 5):
            await self._send(socket, self._dialect.more(word + " "))
            await asyncio.sleep(0.01)
        await socket.ping()
        await self._finish(socket)

    async def _pause(self, socket: ClientConnection) -> None:
        await self._send(socket, self._dialect.more("One two three. "))
        await asyncio.sleep(0.3)
        await self._send(socket, self._dialect.more("Four five. "))
        await self._finish(socket)

    async def _flood(self, socket: ClientConnection) -> None:
        for _ in range(300):
            await self._send(socket, self._dialect.more(self._draw.choice("ab ")))
        await self._finish(socket)

    async def _nonsense(self, socket: ClientConnection) -> None:
        for text in ("{", "[]", "null", '"x"', '{"type": 5}', '{"type": "no.such"}'):
            await socket.send(text)
        await self._words(socket)

    async def _interrupt(self, socket: ClientConnection) -> None:
        await self._send(socket, self._dialect.more(" ".join(WORDS)))
        await self._flush(socket)
        await self._hear(socket, lambda message: False, sound=True)
        for message in self._dialect.cancels:
            await self._send(socket, message)
        await self._hear(socket, self._dialect.cancelled)
        self._seen.cancelled += 1

    async def _vanish(self, socket: ClientConnection) -> None:
        await self._send(socket, self._dialect.more(" ".join(WORDS)))
        await self._flush(socket)
        await asyncio.sleep(self._draw.random() * 0.3)
        socket.transport.abort()
        self._seen.left += 1

    async def _finish(self, socket: ClientConnection) -> None:
        before = self._seen.sound
        await self._flush(socket)
        await self._hear(socket, self._dialect.ends)
        self._seen.ended += 1
        if self._seen.sound == before:
            self._seen.odd.append(f"{self._dialect.path}: an utterance without sound")

    async def _flush(self, socket: ClientConnection) -> None:
        for message in self._dialect.flush:
            await self._send(socket, message)

    async def _hear(
        self, socket: ClientConnection, until: Callable[[Message], bool], sound: bool = False
    ) -> None:
        """Read until a message, or with `sound` until the first slice of it too."""
        async for frame in socket:
            data = frame if isinstance(frame, bytes) else _sound(json.loads(frame))
            self._seen.sound += len(data)
            if (sound and data) or (isinstance(frame, str) and until(json.loads(frame))):
                return
        raise ConnectionClosed(socket.protocol.close_rcvd, socket.protocol.close_sent)

    @staticmethod
    async def _send(socket: ClientConnection, message: Message) -> None:
        await socket.send(json.dumps(message))


def _sound(message: Message) -> str:
    """The base64 of a dialect that carries sound in JSON."""
    return message.get("audio") or message.get("data") or ""


async def sockets(
    url: str,
    dialects: tuple[Dialect, ...],
    at_once: int,
    over: Callable[[int], bool],
    beside: Callable[[], Awaitable[None]] | None = None,
) -> Seen:
    """`at_once` talkers that visit again and again, until `over(visits)`; what they saw.

    Args:
        beside: runs once while they talk.
    """
    seen, visits = Seen(), 0

    async def one(number: int) -> None:
        nonlocal visits
        talker = Talker(url, dialects[number % len(dialects)], number, seen)
        while not over(visits):
            visits += 1
            await talker.visit()

    others = [] if beside is None else [beside()]
    await asyncio.gather(*(one(number) for number in range(at_once)), *others)
    return seen
