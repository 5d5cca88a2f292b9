"""The reply to one speech request: waits for sound, sends it, ends it one way or the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine import EngineError, Finished, SlowReader
from server import events
from server.dependencies import RequestRecord
from server.errors import BodyAborted, answer_for
from server.metrics import Metrics
from server.playout import Playout
from server.speaking import F32, Speaking, Speech, when_gone
from server.spoken import text_headers

WRITE_BYTES = 64 * 1024


class SpeechReply(Response):
    """An ASGI response that starts an utterance and owns it until the end.

    Nothing is sent before the first sound: until then every failure is raised as the engine's
    error and becomes a JSON reply. Later ones raise `BodyAborted`, which cuts the body, or are
    the last event of a reply in events. A client that leaves cancels the utterance at any point.
    """

    def __init__(
        self,
        speech: Speech,
        record: RequestRecord,
        metrics: Metrics,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._speech = speech
        self._record = record
        self._metrics = metrics
        self._more_headers = dict(headers or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Started here and not in the route, so that nothing can come between it and `finally`.
        speaking = await Speaking.start(self._speech, self._record, self._metrics)
        gone = asyncio.create_task(when_gone(receive, speaking.stream.cancel))
        write = _writer(send, self._speech.send_timeout_s)
        try:
            first = await speaking.first()
            # HTTP/1.0 cannot tell a cut body from a whole one.
            if self._speech.streams and scope["http_version"] != "1.0":
                await self._send_as_made(speaking, first, write, gone)
            else:
                await self._send_whole(speaking, *await speaking.whole([first]), write)
        finally:
            gone.cancel()
            await speaking.close()

    async def _send_as_made(
        self, speaking: Speaking, first: F32, write: Writer, gone: asyncio.Task[None]
    ) -> None:
        ready = [first]
        while not isinstance(item := await speaking.next_if_there(), Finished | None):
            ready.append(item)
        if item is not None:
            await self._send_whole(speaking, *await speaking.whole(ready, item), write)
            return
        body = _Body(write, self._reply_headers(speaking), self._speech, speaking.rate)
        try:
            await body.send_all(speaking, ready)
        except EngineError as error:
            if not body.begun:
                raise
            await self._break_off(error, body, gone)
        finally:
            if body.begun:
                self._record.playout = body.playout
                self._metrics.book_playout(body.playout)

    async def _break_off(self, error: EngineError, body: _Body, gone: asyncio.Task[None]) -> None:
        self._book_failure(error)
        if gone.done():
            return
        if not self._speech.events or isinstance(error, SlowReader):
            raise BodyAborted(f"request {self._record.id}: {error}") from None
        try:
            await body.end(events.failure(error))
        except SlowReader:
            raise BodyAborted(f"request {self._record.id}: {error}") from None

    async def _send_whole(
        self, speaking: Speaking, body: bytes, finished: Finished, write: Writer
    ) -> None:
        if self._speech.events:
            end = events.done(finished, speaking.spoken_text)
            body = await asyncio.to_thread(events.delta, body) + end
        headers = self._reply_headers(speaking) | _finish_headers(finished)
        headers["content-length"] = str(len(body))
        try:
            await write(_start(headers))
            for piece in _pieces(body):
                await write(_body(piece))
            await write(_body(b"", more=False))
        except SlowReader as error:
            self._book_failure(error)
            raise BodyAborted(f"request {self._record.id}: {error}") from None

    def _book_failure(self, error: EngineError) -> None:
        self._record.reason = answer_for(error).code
        self._record.detail = str(error)

    def _reply_headers(self, speaking: Speaking) -> dict[str, str]:
        shape = self._speech.shape
        sound = shape.content_type(speaking.rate)
        headers = {
            "content-type": events.MEDIA_TYPE if self._speech.events else sound,
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "x-framecast-seed": str(speaking.stream.seed),
        }
        if speaking.warnings:
            headers["x-framecast-warning"] = _header_text("; ".join(speaking.warnings))
        if speaking.spoken_text is not None:
            headers |= text_headers(speaking.spoken_text)
        return headers | self._more_headers


class _Body:
    # The body of a streamed reply: its head leaves with the first bytes of the container.
    def __init__(
        self, write: Writer, headers: dict[str, str], speech: Speech, model_rate: int
    ) -> None:
        self._write = write
        self._headers = headers
        self._speech = speech
        self._per_second = model_rate * speech.shape.speed
        self._waiting_s = 0.0
        self.begun = False
        self.playout = Playout()

    async def send_all(self, speaking: Speaking, ready: list[F32]) -> None:
        await self._send(b"".join([await self._made(speaking, pcm) for pcm in ready]))
        while not isinstance(item := await speaking.next(), Finished):
            await self._send(await self._made(speaking, item))
        await self._send(await speaking.finish())
        await self.end(events.done(item, speaking.spoken_text) if self._speech.events else b"")

    async def end(self, last: bytes) -> None:
        await self._write(_body(last, more=False))

    async def _made(self, speaking: Speaking, pcm: F32) -> bytes:
        self._waiting_s += pcm.size / self._per_second
        return await speaking.make(pcm)

    async def _send(self, data: bytes) -> None:
        if not data:
            return
        if not self.begun:
            self.begun = True
            await self._write(_start(self._headers))
        self.playout.write(self._waiting_s)
        self._waiting_s = 0.0
        await self._write(_body(events.delta(data) if self._speech.events else data))


Writer = Callable[[dict[str, object]], Awaitable[None]]


def _writer(send: Send, timeout_s: float) -> Writer:
    async def write(message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await send(message)
        except TimeoutError:
            raise SlowReader(f"the client read nothing for {timeout_s:g} s") from None

    return write


def _start(headers: dict[str, str]) -> dict[str, object]:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": 200, "headers": raw}


def _body(data: bytes, more: bool = True) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def _pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), WRITE_BYTES):
        yield body[start : start + WRITE_BYTES]


def _finish_headers(finished: Finished) -> dict[str, str]:
    stats = finished.stats
    return {
        "x-framecast-finish-reason": str(finished.reason),
        "x-framecast-frames": str(stats.frames),
        "x-framecast-queue-ms": _ms(stats.queue_s),
        "x-framecast-first-audio-ms": _ms(stats.first_audio_s),
        "x-framecast-total-ms": _ms(stats.total_s),
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def _header_text(text: str) -> str:
    # A header is one line of Latin-1; what does not fit is escaped rather than lost.
    return text.encode("ascii", "backslashreplace").decode().replace("\n", " ").replace("\r", " ")


__all__ = ["SpeechReply"]
