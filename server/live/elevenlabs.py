"""ElevenLabs' dialects of live text: one context per socket, or several.

client                                   -> server
{"text": " ", "voice_settings"}          opens a context, with `context_id` where there are several
{"text"}, {"text", "flush": true}        -> {"audio", "alignment": null, "contextId"} ...
{"text": ""} (one context)               -> {"isFinal": true} and the end of the socket
{"text": "", "context_id"} (several)     keeps a context alive
{"close_context": true, "context_id"}    -> {"isFinal": true, "contextId"}, its last message
{"close_socket": true}                   -> the same for all contexts, and the end of the socket
what is wrong                            -> {"message", "error", "param"}, and the socket goes on
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine import EngineError, FinishReason, InputTimeout, InvalidRequest
from server.errors import InvalidApiKey, RateLimited
from server.live.contexts import Context
from server.live.elevenlabs_messages import finished, sound, told
from server.live.events import Cancelled, Ended, Event, Flushed, Reply, Sound, Started
from server.live.messages import parsed, string, switch
from server.live.outbox import Outbox
from server.live.segment import Manner, Mouth
from server.live.several import Contexts
from server.live.sockets import NORMAL, POLICY, Close, Limits

KEY_S = 10.0
MOST_MESSAGE = 128 * 1024
MOST_CONTEXTS = 16
MOST_NAME = 256
DEFAULT_NAME = "default"
KEY_FIELDS = ("xi_api_key", "xi-api-key", "authorization")

# The manner that a context's first message asks for, and what of it has no effect.
Configure = Callable[[dict[str, Any]], Awaitable[tuple[Manner, tuple[str, ...]]]]
Identify = Callable[[str], object]


@dataclass(slots=True)
class _Talk:
    """A context under the name its client gives it; `flushes` are those not answered yet."""

    name: str
    context: Context
    settings: Any
    heard_s: float
    warnings: list[str] = field(default_factory=list)
    flushes: int = 0
    ends: bool = False


class ElevenLabs:
    """One socket; see `server.live.sockets.Dialect`.

    Args:
        several: contexts have names; otherwise there is one, and an empty text ends it.
        identify: takes the key of the first message; None when there was one before, or none is
            needed.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        configure: Configure,
        mouth: Mouth,
        outbox: Outbox,
        limits: Limits,
        *,
        several: bool,
        identify: Identify | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configure = configure
        self._contexts = Contexts(mouth, outbox, limits.most_chars, MOST_CONTEXTS)
        self._outbox = outbox
        self._limits = limits
        self._several = several
        self._identify = identify
        self._clock = clock
        self._talks: dict[str, deque[_Talk]] = {}  # by the id of the context, in order
        self._open: dict[str, _Talk] = {}  # by name, those that take text
        self._past: deque[str] = deque(maxlen=4 * MOST_CONTEXTS)  # names, the last ones
        self._closing = False
        self._lost = False  # some of the text will not be heard

    @property
    def patience_s(self) -> float:
        return self._limits.idle_s if self._identify is None else KEY_S

    @property
    def speaking(self) -> bool:
        return self._contexts.speaking

    def late(self) -> Close:
        if self._identify is not None:
            self._error(InvalidApiKey(f"no API key came within {KEY_S:g} s"), None)
            return Close(POLICY, "no API key")
        if not self._open:
            return Close(NORMAL, "idle")
        self._error(InputTimeout(f"no message came for {self._limits.idle_s:g} s"), None)
        return Close(POLICY, "input timeout")

    async def receive(self, message: str) -> None:
        if self._closing:
            return
        name = None
        try:
            data = parsed(message, MOST_MESSAGE)
            name = self._name(data)
            self._check_key(data)
            self._end_idle(name)
            await self._do(name, data)
        except (EngineError, InvalidApiKey, RateLimited) as error:
            self._error(error, name)
            if self._identify is not None:
                raise Close(POLICY, "not admitted") from None

    def frames(self, event: Event) -> Iterator[str | bytes]:
        match event:
            case Reply(text=text):
                yield text
            case Started():
                pass
            case Sound(context=key, data=data):
                talk = self._talks[key][0]
                talk.heard_s = self._clock()
                yield sound(data, self._place(talk.name))
            case Ended(context=key):
                yield from self._ended(event, self._talks[key][0])
            case Flushed(context=key):
                talk = self._talks[key][0]
                talk.flushes -= 1
                if talk.ends and not talk.flushes:
                    yield from self._final(key)
            case Cancelled(context=key):
                for _ in list(self._talks[key]):
                    yield from self._final(key)

    async def aclose(self) -> None:
        await self._contexts.aclose()

    async def _do(self, name: str, data: dict[str, Any]) -> None:
        if self._several and switch(data, "close_socket"):
            self._close_socket()
        elif self._several and switch(data, "close_context"):
            self._close_context(name)
        else:
            flush = switch(data, "flush")
            text = string(data, "text", "" if flush and self._several else None)
            try:
                await self._take(name, data, text, flush=flush)
            except EngineError:
                self._lost = True
                raise

    async def _take(self, name: str, data: dict[str, Any], text: str, *, flush: bool) -> None:
        talk = self._open.get(name)
        if talk is None and text:
            talk = await self._begin(name, data)
        elif talk is not None and data.get("voice_settings"):
            await self._change(talk, data)
        if talk is not None:
            talk.heard_s = self._clock()
            if text.strip() or (text and talk.context.has_text):
                talk.context.append(text)
            if flush:
                self._flush(talk)
        if not (text or self._several):
            self._end_of_input(talk)

    async def _begin(self, name: str, data: dict[str, Any]) -> _Talk:
        manner, warnings = await self._configure(data)
        if line := self._ending(name):
            context = line[-1].context
            context.manner = manner
        else:
            context = self._contexts.open(manner)
            line = self._talks[context.id] = deque()
        talk = _Talk(name, context, data.get("voice_settings"), self._clock(), list(warnings))
        line.append(talk)
        self._open[name] = talk
        return talk

    def _ending(self, name: str) -> deque[_Talk] | None:
        """Those of a name of which the last was closed and is still speaking."""
        lines = (line for line in self._talks.values() if line[-1].name == name and line[-1].ends)
        return next(lines, None)

    async def _change(self, talk: _Talk, data: dict[str, Any]) -> None:
        settings = data["voice_settings"]
        if settings == talk.settings:
            return
        if talk.context.has_text:
            raise InvalidRequest(
                "`voice_settings` cannot change a text that has begun: send `flush` first",
                "voice_settings",
            )
        talk.context.manner, warnings = await self._configure(data)
        talk.warnings += [each for each in warnings if each not in talk.warnings]
        talk.settings = settings

    def _flush(self, talk: _Talk) -> None:
        talk.flushes += 1
        talk.context.flush()

    def _end(self, talk: _Talk) -> None:
        """Let it say what was flushed; its last message follows."""
        del self._open[talk.name]
        talk.ends = True
        self._flush(talk)

    def _close_context(self, name: str) -> None:
        talk, known = self._open.get(name), name in self._past
        self._past.append(name)
        if talk is not None and talk.context.has_text:
            # Who closes in the middle of a text was interrupted.
            del self._open[name]
            talk.context.cancel()
        elif talk is not None:
            self._end(talk)
        elif not known:
            self._outbox.post(Reply(finished((), self._place(name))))

    def _close_socket(self) -> None:
        self._closing = True
        for name in list(self._open):
            self._close_context(name)
        if not self._talks:
            raise Close(NORMAL, "close_socket")

    def _end_of_input(self, talk: _Talk | None) -> None:
        self._closing = True
        if talk is not None:
            self._end(talk)
            return
        if not self._lost:
            self._outbox.post(Reply(finished((), None)))
        raise self._last()

    def _end_idle(self, name: str) -> None:
        """End contexts their client seems to have forgotten, as none may be left for others."""
        since = self._clock() - self._limits.idle_s
        for talk in list(self._open.values()):
            if talk.name != name and talk.heard_s < since and not talk.context.speaking:
                self._close_context(talk.name)

    def _name(self, data: dict[str, Any]) -> str:
        name = string(data, "context_id", DEFAULT_NAME) if self._several else DEFAULT_NAME
        if len(name) > MOST_NAME:
            raise InvalidRequest(
                f"`context_id` must have at most {MOST_NAME} characters", "context_id"
            )
        return name

    def _check_key(self, data: dict[str, Any]) -> None:
        if self._identify is None:
            return
        given = next((data[name] for name in KEY_FIELDS if data.get(name)), "")
        self._identify(str(given).removeprefix("Bearer "))
        self._identify = None

    def _final(self, key: str) -> Iterator[str]:
        line = self._talks[key]
        talk = line.popleft()
        if not line:
            del self._talks[key]
            self._contexts.release(talk.context)
        # Of several, each must be told; the only one ends well or not at all.
        if self._several or not self._lost:
            yield finished(talk.warnings, self._place(talk.name))
        if self._closing and not self._talks:
            raise self._last()

    def _last(self) -> Close:
        if self._lost and not self._several:
            return Close(POLICY, "some of the text was not spoken")
        return Close(NORMAL, "end of input")

    def _ended(self, event: Ended, talk: _Talk) -> Iterator[str]:
        talk.warnings += [each for each in event.warnings if each not in talk.warnings]
        if event.error is not None:
            self._lost = True
            yield told(event.error, self._place(talk.name))
        elif event.finished is not None and event.finished.reason is not FinishReason.STOP:
            talk.warnings.append(f"the speech was ended by `{event.finished.reason}`")

    def _place(self, name: str | None) -> dict[str, str] | None:
        """What messages about a context name it by; None where there is only one."""
        return {} if name is None else {"contextId": name} if self._several else None

    def _error(self, error: Exception, name: str | None) -> None:
        self._outbox.post(Reply(told(error, self._place(name))))


__all__ = ["Configure", "ElevenLabs"]
