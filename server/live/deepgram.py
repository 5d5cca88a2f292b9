"""Deepgram's dialect of live text, the WebSocket `/v1/speak`.

client -> server
          Metadata       first, and a Warning for what of the query has no effect
Speak  -> binary frames  from the first word on
Flush  -> Flushed        once for each, after the last sound of its text
Clear  -> Cleared        nothing of what was said before follows, nor a Flushed for it
Close  -> (the socket is closed, 1000, after what was sent to be spoken)
what is wrong -> Error   and the session goes on
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from itertools import count
from typing import Any

from engine import EngineError, FinishReason, InvalidRequest
from server.dialects import DEEPGRAM, renamed
from server.errors import error_object
from server.live.contexts import Context
from server.live.events import Cancelled, Ended, Event, Flushed, Reply, Sound, Started
from server.live.messages import parsed, string
from server.live.outbox import Outbox
from server.live.segment import Manner, Mouth
from server.live.sockets import NORMAL, Close, Limits
from server.version import version

MOST_MESSAGE = 128 * 1024
# Their clients have no message that keeps a socket open between turns.
IDLE_S = 3600.0
_MODELS = uuid.UUID("6f6d6f64-656c-4d6f-8e61-6d6573706163")


class Deepgram:
    """One session; see `server.live.sockets.Dialect`. To be made on the event loop.

    Args:
        request_id, model: what `Metadata` says.
        warnings: of the query.
    """

    def __init__(
        self,
        manner: Manner,
        mouth: Mouth,
        outbox: Outbox,
        limits: Limits,
        *,
        request_id: str,
        model: str,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._outbox = outbox
        self._limits = limits
        self._request_id = request_id
        self._context = Context("", mouth, manner, outbox, most_chars=limits.most_chars)
        self._numbers = count()
        self._flushes = 0  # not answered yet
        self._closing = False
        self._post(
            "Metadata",
            request_id=request_id,
            model_name=model,
            model_version=version(),
            model_uuid=str(uuid.uuid5(_MODELS, model)),
        )
        for warning in warnings:
            outbox.post(Reply(_warning(warning, "NO_EFFECT")))

    @property
    def patience_s(self) -> float:
        return self._limits.idle_s

    @property
    def speaking(self) -> bool:
        return self._context.speaking

    def late(self) -> Close:
        self._outbox.post(Reply(_warning(f"no message came for {self._limits.idle_s:g} s", "IDLE")))
        return Close(NORMAL, "idle")

    async def receive(self, message: str) -> None:
        try:
            data = parsed(message, MOST_MESSAGE)
            # Of what comes behind a Close, only that its sound is not wanted any more matters.
            if not self._closing or data.get("type") == "Clear":
                self._do(data)
        except EngineError as error:
            self._outbox.post(Reply(self._error(error)))

    def frames(self, event: Event) -> Iterator[str | bytes]:
        match event:
            case Reply(text=text):
                yield text
            case Started():
                pass
            case Sound(data=data):
                yield data
            case Ended():
                yield from self._ended(event)
            case Flushed():
                self._flushes -= 1
                if self._closing and not self._flushes:
                    raise Close(NORMAL, "Close")
                yield _json("Flushed", sequence_id=next(self._numbers))
            case Cancelled():
                yield _json("Cleared", sequence_id=next(self._numbers))
                if self._closing and not self._flushes:
                    raise Close(NORMAL, "Close")

    async def aclose(self) -> None:
        await self._context.aclose()

    def _do(self, data: dict[str, Any]) -> None:
        match data.get("type"):
            case "Speak":
                self._context.append(string(data, "text"))
            case "Flush":
                self._flush()
            case "Clear":
                self._flushes = 0
                self._context.cancel()
            case "Close":
                self._closing = True
                self._flush()
            case other:
                known = "Speak, Flush, Clear, Close"
                raise InvalidRequest(f"unknown message type {other!r:.60}; one of {known}", "type")

    def _flush(self) -> None:
        self._flushes += 1
        self._context.flush()

    def _ended(self, event: Ended) -> Iterator[str]:
        yield from (_warning(each, "ENGINE") for each in event.warnings)
        if event.error is not None:
            yield self._error(event.error)
        elif event.finished is not None and event.finished.reason is not FinishReason.STOP:
            reason = str(event.finished.reason)
            yield _warning(f"the speech was ended by `{reason}`", reason.upper())

    def _error(self, error: Exception) -> str:
        detail = renamed(error_object(error), DEEPGRAM)
        code = str(detail.pop("code") or detail["type"]).upper()
        message = detail.pop("message")
        fields = {"description": message, "code": code, "err_msg": message, "err_code": code}
        return _json("Error", **fields, request_id=self._request_id, param=detail["param"])

    def _post(self, kind: str, **fields: Any) -> None:
        self._outbox.post(Reply(_json(kind, **fields)))


def _warning(message: str, code: str) -> str:
    # Their documents and their package name the fields differently.
    fields = {"description": message, "code": code, "warn_msg": message, "warn_code": code}
    return _json("Warning", **fields)


def _json(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


__all__ = ["IDLE_S", "Deepgram"]
