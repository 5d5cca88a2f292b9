"""The reply to one speech request: waits for sound, encodes it, sends it, lets go of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine import (
    Audio,
    EngineError,
    Finished,
    GenerationFailed,
    ModelInfo,
    SlowReader,
    Stream,
    Utterance,
)
from server.audio.encoders import AudioFormat, open_encoder
from server.audio.wav import wav_header
from server.dependencies import RequestRecord
from server.errors import BodyAborted, answer_for
from server.metrics import Metrics
from server.playout import Playout

WRITE_BYTES = 64 * 1024


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
    """What to speak and how the listener wants it; `start` submits it to the engine."""

    start: Callable[[], Stream | Utterance]
    model: ModelInfo
    format: AudioFormat
    streams: bool
    send_timeout_s: float


class SpeechReply(Response):
    """An ASGI response that starts an utterance and owns it until the end.

    Nothing is sent before the first sound: until then every failure is raised as the engine's
    error and becomes a JSON reply. Later ones raise `BodyAborted`, which cuts the body. A client
    that leaves cancels the utterance at any point.
    """

    def __init__(self, speech: Speech, record: RequestRecord, metrics: Metrics) -> None:
        super().__init__()
        self._speech = speech
        self._record = record
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Started here and not in the route, so that nothing can come between it and `finally`.
        self._record.model = self._speech.model.name
        self._record.submitted = time.monotonic()
        self._stream = await self._start()
        self._sample_rate = self._stream.sample_rate
        self._record.seed = self._stream.seed
        self._reader = Reader(self._stream)
        gone = asyncio.create_task(_cancel_when_gone(receive, self._stream))
        write = _writer(send, self._speech.send_timeout_s)
        try:
            first = await self._first_audio()
            # HTTP/1.0 cannot tell a cut body from a whole one.
            if self._speech.streams and scope["http_version"] != "1.0":
                await self._send_as_made(first, write, gone)
            else:
                await self._send_whole(*await self._collect(first), write)
        finally:
            gone.cancel()
            await self._reader.close()

    async def _start(self) -> Stream | Utterance:
        # Splitting and tokenising a long text takes a while: not on the loop.
        starting = asyncio.ensure_future(asyncio.to_thread(self._speech.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_forsake)
            raise

    async def _first_audio(self) -> bytes:
        audio = await self._reader.read()
        while isinstance(audio, Audio) and not audio.pcm.size:
            audio = await self._reader.read()
        if isinstance(audio, Finished):
            raise GenerationFailed("the model produced no audio")
        self._record.first_audio_s = time.monotonic() - self._record.started
        self._metrics.first_audio.observe(self._record.first_audio_s)
        return self._book_audio(audio)

    async def _collect(self, first: bytes) -> tuple[bytes, Finished]:
        started = time.monotonic()
        encoder = open_encoder(self._speech.format, self._sample_rate)
        await asyncio.to_thread(encoder.write, first)
        while isinstance(item := await self._reader.read(), Audio):
            if item.pcm.size:
                await asyncio.to_thread(encoder.write, self._book_audio(item))
        self._book_end(item)
        body = await asyncio.to_thread(encoder.finish)
        self._record.encoded = started, time.monotonic()
        return body, item

    async def _send_as_made(self, first: bytes, write: Writer, gone: asyncio.Task[None]) -> None:
        ready = bytearray(first)
        while isinstance(item := await self._reader.poll(), Audio):
            ready += self._book_audio(item)
        if item is not None:
            self._book_end(item)
            await self._send_whole(self._wav_header(len(ready)) + bytes(ready), item, write)
            return
        playout = self._record.playout = Playout()
        try:
            await self._write_body(bytes(ready), write, playout)
        except EngineError as error:
            self._abort(error, quietly=gone.done())
        finally:
            self._metrics.book_playout(playout)

    async def _write_body(self, ready: bytes, write: Writer, playout: Playout) -> None:
        await write(_start(self._reply_headers()))
        playout.write(self._seconds(ready))
        await write(_body(self._wav_header(None) + ready))
        while isinstance(item := await self._reader.read(), Audio):
            pcm = self._book_audio(item)
            playout.write(self._seconds(pcm))
            await write(_body(pcm))
        self._book_end(item)
        await write(_body(b"", more=False))

    async def _send_whole(self, body: bytes, finished: Finished, write: Writer) -> None:
        headers = self._reply_headers() | _finish_headers(finished)
        headers["content-length"] = str(len(body))
        try:
            await write(_start(headers))
            for piece in _pieces(body):
                await write(_body(piece))
            await write(_body(b"", more=False))
        except SlowReader as error:
            self._abort(error)

    def _abort(self, error: EngineError, quietly: bool = False) -> None:
        self._record.reason = answer_for(error).code
        self._record.detail = str(error)
        if not quietly:
            raise BodyAborted(f"request {self._record.id}: {error}") from None

    def _wav_header(self, data_bytes: int | None) -> bytes:
        if self._speech.format.name != "wav":
            return b""
        return wav_header(self._sample_rate, data_bytes)

    def _reply_headers(self) -> dict[str, str]:
        headers = {
            "content-type": self._speech.format.content_type(self._sample_rate),
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "x-framecast-seed": str(self._stream.seed),
        }
        if self._stream.warnings:
            headers["x-framecast-warning"] = _header_text("; ".join(self._stream.warnings))
        return headers

    def _seconds(self, pcm: bytes) -> float:
        return len(pcm) / 2 / self._sample_rate

    def _book_audio(self, audio: Audio) -> bytes:
        self._metrics.audio_seconds.inc(audio.pcm.size / self._sample_rate)
        self._record.audio_s += audio.pcm.size / self._sample_rate
        frames = audio.pcm.size // self._speech.model.samples_per_frame
        self._record.frames = (self._record.frames or 0) + frames
        return audio.pcm16()

    def _book_end(self, finished: Finished) -> None:
        stats = finished.stats
        self._record.reason = str(finished.reason)
        self._record.stats = stats
        seconds = stats.frames * self._speech.model.samples_per_frame / self._sample_rate
        work = stats.total_s - stats.queue_s
        self._record.real_time_factor = work / seconds if seconds else None
        self._metrics.book_end(stats, self._record.real_time_factor)


Writer = Callable[[dict[str, object]], Awaitable[None]]


def _writer(send: Send, timeout_s: float) -> Writer:
    async def write(message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await send(message)
        except TimeoutError:
            raise SlowReader(f"the client read nothing for {timeout_s:g} s") from None

    return write


def _forsake(starting: asyncio.Future[Stream | Utterance]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()


async def _cancel_when_gone(receive: Receive, stream: Stream | Utterance) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.cancel()


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


__all__ = ["Reader", "Speech", "SpeechReply"]
