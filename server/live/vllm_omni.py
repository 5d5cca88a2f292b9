"""vLLM-Omni's dialect of live text, `/v1/audio/speech/stream`, with a cancel of ours.

client           -> server
session.config   -> session.configured     first, and between utterances
input.text       -> audio.start, binary frames, audio.done   per segment
input.done       -> session.done           once, after the last sound
input.cancel     -> session.cancelled      nothing of what was said before follows
session.close    -> (the socket is closed, 1000)
what is wrong    -> error                  and the session goes on
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from engine import EngineError, InvalidRequest
from server.errors import error_object
from server.live.contexts import Context
from server.live.events import Cancelled, Ended, Event, Flushed, Reply, Sound, Started
from server.live.messages import parsed, string
from server.live.outbox import Outbox
from server.live.segment import Manner, Mouth
from server.live.sockets import NORMAL, POLICY, Close, Limits

CONFIG_S = 10.0
MOST_CONFIG = 4 * 1024 * 1024
MOST_TEXT = 128 * 1024
GRANULARITIES = ("none", "sentence", "clause")

# The manner a config asks for, and what of it has no effect; raises what is wrong with it.
Configure = Callable[[dict[str, Any]], Awaitable[tuple[Manner, list[str]]]]


class VllmOmni:
    """One session; see `server.live.sockets.Dialect`."""

    def __init__(self, configure: Configure, mouth: Mouth, outbox: Outbox, limits: Limits) -> None:
        self._configure = configure
        self._mouth = mouth
        self._outbox = outbox
        self._limits = limits
        self._context: Context | None = None

    @property
    def patience_s(self) -> float:
        return CONFIG_S if self._context is None else self._limits.idle_s

    @property
    def speaking(self) -> bool:
        return self._context is not None and self._context.speaking

    def late(self) -> Close:
        if self._context is None:
            self._error(f"no `session.config` came within {CONFIG_S:g} s")
            return Close(POLICY, "no session.config")
        self._error(f"no message came for {self._limits.idle_s:g} s")
        return Close(NORMAL, "idle")

    async def receive(self, message: str) -> None:
        try:
            data = _parsed(message)
            kind = data.get("type")
            if self._context is None and kind not in ("session.config", "session.close"):
                raise InvalidRequest(
                    f"the first message must be `session.config`, got {kind!r:.60}", "type"
                )
            await self._do(kind, data)
        except EngineError as error:
            detail = error_object(error)
            self._error(str(detail["message"]), error=detail)
            if self._context is None:
                raise Close(POLICY, "no session.config") from None

    def frames(self, event: Event) -> Iterator[str | bytes]:
        match event:
            case Sound(data=data):
                yield data
            case Reply(text=text):
                yield text
            case Started():
                yield _json(
                    "audio.start",
                    **_place(event),
                    sentence_text=event.text,
                    format=event.format,
                    sample_rate=event.sample_rate,
                    channels=1,
                )
            case Ended():
                yield from _ended(event)
            case Flushed():
                yield _json(
                    "session.done",
                    utterance_index=event.utterance,
                    total_sentences=event.segments,
                )
            case Cancelled():
                yield _json("session.cancelled", utterance_index=event.utterance)

    async def aclose(self) -> None:
        if self._context is not None:
            await self._context.aclose()

    async def _do(self, kind: Any, data: dict[str, Any]) -> None:
        match kind:
            case "session.config":
                await self._config(data)
            case "session.close":
                await self._close()
        if kind in ("session.config", "session.close"):
            return
        assert self._context is not None
        match kind:
            case "input.text":
                self._context.append(string(data, "text"))
            case "input.done":
                self._context.flush()
            case "input.cancel":
                self._context.cancel()
            case _:
                known = "session.config, input.text, input.done, input.cancel, session.close"
                raise InvalidRequest(f"unknown message type {kind!r:.60}; one of {known}", "type")

    async def _config(self, data: dict[str, Any]) -> None:
        context = self._context
        if context is not None and context.has_text:
            raise InvalidRequest(
                "`session.config` cannot change an utterance that has begun: send `input.done` or"
                " `input.cancel` first",
                "type",
            )
        manner, warnings = await self._configure(data)
        if context is not None:
            context.manner = manner
        else:
            self._context = Context(
                "", self._mouth, manner, self._outbox, most_chars=self._limits.most_chars
            )
        told = {"warnings": warnings} if warnings else {}
        self._outbox.post(Reply(_json("session.configured", **told)))

    async def _close(self) -> None:
        # What was flushed is still said; what was not is nobody's any more.
        if self._context is not None:
            self._context.withdraw()
            await self._context.quiet()
        raise Close(NORMAL, "session.close")

    def _error(self, message: str, **more: Any) -> None:
        self._outbox.post(Reply(_json("error", message=message, **more)))


def granularity(data: dict[str, Any]) -> str:
    """A config's `split_granularity`; `InvalidRequest` when there is no such."""
    value = data.get("split_granularity") or "none"
    if value not in GRANULARITIES:
        known = ", ".join(GRANULARITIES)
        raise InvalidRequest(
            f"`split_granularity` must be one of {known}, got {value!r:.60}", "split_granularity"
        )
    return str(value)


def _parsed(message: str) -> dict[str, Any]:
    data = parsed(message, MOST_CONFIG)
    if data.get("type") != "session.config" and len(message) > MOST_TEXT:
        raise InvalidRequest(
            f"a message other than `session.config` must have at most {MOST_TEXT} characters,"
            f" got {len(message)}",
            "text",
        )
    return data


def _ended(event: Ended) -> Iterator[str]:
    reason = None if event.finished is None else str(event.finished.reason)
    if event.error is not None:
        detail = error_object(event.error)
        yield _json("error", message=detail["message"], error=detail, **_place(event))
    yield _json(
        "audio.done",
        **_place(event),
        total_bytes=event.size,
        error=event.error is not None,
        finish_reason=reason,
    )


def _place(event: Started | Ended) -> dict[str, int]:
    return {"utterance_index": event.utterance, "sentence_index": event.segment}


def _json(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


__all__ = ["CONFIG_S", "Limits", "VllmOmni", "granularity"]
