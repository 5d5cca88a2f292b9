"""Cartesia's dialect of live text, `/tts/websocket`: several contexts on one socket.

client                                        -> server
{context_id, transcript, "continue": true}    -> chunk ...         as it is made
{context_id, transcript, "flush": true}       -> chunk ..., flush_done
{context_id, transcript, "continue": false}   -> chunk ..., done   the context's last message
{context_id, "cancel": true}                  -> done (499)        nothing of the context follows
what is wrong                                 -> error             which ends its context
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine import EngineError, FinishReason, InvalidRequest
from server.dialects import renamed
from server.errors import answer_for, error_object
from server.live.contexts import Context
from server.live.events import Ended, Event, Flushed, Reply, Sound
from server.live.messages import parsed
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.several import Contexts
from server.live.sockets import NORMAL, Close
from server.schemas.cartesia import FIELDS, CartesiaBody

# These clients keep sockets for minutes.
IDLE_S = 300.0
MOST_MESSAGE = 512 * 1024
MOST_NAME = 256
OK, MORE, CANCELLED = 200, 206, 499

# The manner a message asks for, and what of it has no effect; raises what is wrong with it.
Configure = Callable[[CartesiaBody], Awaitable[tuple[Manner, tuple[str, ...]]]]


@dataclass(slots=True)
class _Line:
    """A context under its client's name. `ends` has, for each flush that is not over, whether
    `flush_done` and whether `done` is sent then; `heard` is what is to be told of the text."""

    name: str
    context: Context
    settings: dict[str, Any]
    warnings: tuple[str, ...]
    since: float
    flushes: int = 0
    heard: list[str] = field(default_factory=list)
    ends: deque[tuple[bool, bool]] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None


class Cartesia:
    """One socket; see `server.live.sockets.Dialect`.

    Args:
        idle_s: seconds without a message, while nothing is spoken.
        connection: what errors call this socket.
    """

    def __init__(
        self,
        configure: Configure,
        contexts: Contexts,
        outbox: Outbox,
        *,
        idle_s: float,
        connection: str = "",
    ) -> None:
        self._configure = configure
        self._contexts = contexts
        self._outbox = outbox
        self._idle_s = max(idle_s, IDLE_S)
        self._connection = connection
        self._lines: dict[str, _Line] = {}  # by the client's name
        self._found: dict[str, _Line] = {}  # by the id of the context

    @property
    def patience_s(self) -> float:
        return self._idle_s

    @property
    def speaking(self) -> bool:
        return self._contexts.speaking

    def late(self) -> Close:
        return Close(NORMAL, "idle")

    async def receive(self, message: str) -> None:
        name = None
        try:
            data = parsed(message, MOST_MESSAGE)
            name = _name(data)
            body = CartesiaBody.checked(data)
            if body.cancel:
                self._cancel(name)
            else:
                await self._speak(name, body)
        except EngineError as error:
            self._drop(name)
            self._outbox.post(Reply(self._error(name, error)))

    def frames(self, event: Event) -> Iterator[str | bytes]:
        match event:
            case Reply(text=text):
                yield text
            case Sound(context=key, data=data):
                yield _chunk(self._found[key], data)
            case Ended(context=key):
                line = self._found[key]
                line.heard += event.warnings
                if event.finished and event.finished.reason is not FinishReason.STOP:
                    line.heard.append(f"the speech was ended by `{event.finished.reason}`")
                if event.error is not None:
                    self._drop(line.name)
                    yield self._error(line.name, event.error)
            case Flushed(context=key):
                yield from self._flushed(self._found[key])

    async def aclose(self) -> None:
        for name in list(self._lines):
            self._drop(name)
        await self._contexts.aclose()

    async def _speak(self, name: str, body: CartesiaBody) -> None:
        line = await self._line(name, body)
        self._stop_timer(line)
        text, context = body.transcript, line.context
        at_once = body.max_buffer_delay_ms == 0
        last = not body.continues
        if at_once or (last and not context.has_text):
            context.say(text)
        else:
            context.append(text)
        if last or body.flush or (at_once and context.has_text):
            self._flush(line, told=body.flush or (at_once and bool(text.strip())), last=last)
        elif context.has_text:
            delay_s = body.max_buffer_delay_ms / 1000
            loop = asyncio.get_running_loop()
            line.timer = loop.call_later(delay_s, self._flush, line)

    async def _line(self, name: str, body: CartesiaBody) -> _Line:
        """The context a message is for, made when there is none."""
        line = self._lines.get(name)
        changed = line and body.transcript.strip() and _changed(line.settings, body.settings)
        if line is not None and not changed:
            return line
        if line is not None:
            left_out = {n: v for n, v in line.settings.items() if n not in body.settings}
            body = body.model_copy(update=left_out)
        manner, warnings = await self._configure(body)
        line = self._lines.get(name)  # it may have ended meanwhile
        if line is None:
            context = self._contexts.open(manner)
            line = _Line(name, context, body.settings, warnings, time.monotonic())
            self._lines[name] = self._found[context.id] = line
        elif line.context.has_text:
            raise InvalidRequest(
                f"`{changed}` cannot change in the middle of a text: send `flush` first, or use"
                " another context",
                changed or None,
            )
        else:
            line.context.manner, line.warnings = manner, warnings
            line.settings = body.settings
        return line

    def _flush(self, line: _Line, *, told: bool = False, last: bool = False) -> None:
        line.ends.append((told, last))
        line.context.flush()

    def _flushed(self, line: _Line) -> list[str]:
        answered, last = line.ends.popleft()
        frames = []
        if answered:
            line.flushes += 1
            end: dict[str, Any] = {"flush_done": True, "flush_id": line.flushes}
            frames.append(_json(line.name, "flush_done", MORE, **end))
        if last:
            # Once each, in order.
            told = list(dict.fromkeys([*line.warnings, *line.heard]))
            line.heard.clear()
            warnings = {"warnings": told} if told else {}
            frames.append(_json(line.name, "done", OK, done=True, **warnings))
            if not (line.ends or line.context.has_text):
                self._drop(line.name)
        return frames

    def _cancel(self, name: str) -> None:
        self._drop(name)
        self._outbox.post(Reply(_json(name, "done", CANCELLED, done=True)))

    def _drop(self, name: str | None) -> None:
        line = self._lines.pop(name or "", None)
        if line is not None:
            self._stop_timer(line)
            del self._found[line.context.id]
            self._contexts.release(line.context)

    def _stop_timer(self, line: _Line) -> None:
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None

    def _error(self, name: str | None, error: Exception) -> str:
        detail = renamed(error_object(error), FIELDS)
        code = detail["code"] or detail["type"]
        return json.dumps(
            {
                "type": "error",
                "context_id": name,
                "status_code": answer_for(error).status,
                "done": True,
                "error": detail["message"],
                "title": str(code).replace("_", " ").capitalize(),
                "message": detail["message"],
                "error_code": code,
                "param": detail["param"],
                "request_id": self._connection,
            }
        )


def _name(data: dict[str, Any]) -> str:
    name = data.get("context_id")
    if name is None and not data.get("cancel"):
        return str(uuid.uuid4())
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME:
        raise InvalidRequest(
            f"`context_id` must be a string of 1 to {MOST_NAME} characters, got {name!r:.60}",
            "context_id",
        )
    return name


def _changed(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first setting that is not what it was; one that is left out stays."""
    return next((name for name in now if now[name] != before.get(name)), None)


def _chunk(line: _Line, data: bytes) -> str:
    now = time.monotonic()
    step_ms, line.since = (now - line.since) * 1000, now
    sound = base64.b64encode(data).decode()
    return _json(
        line.name, "chunk", MORE, data=sound, step_time=round(step_ms, 3), flush_id=line.flushes + 1
    )


def _json(name: str, kind: str, status: int, *, done: bool = False, **fields: Any) -> str:
    head = {"type": kind, "context_id": name, "status_code": status, "done": done}
    return json.dumps(head | fields)


__all__ = ["IDLE_S", "Cartesia", "Configure"]
