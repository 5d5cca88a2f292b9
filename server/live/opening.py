"""How a socket begins, whatever dialect it speaks: who may call, and in what manner it speaks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.websockets import WebSocket

from engine import EngineError, InvalidRequest, UnknownVoice
from server.audio.formats import AudioFormat
from server.dependencies import RequestRecord, Service
from server.errors import answer_for, error_object, error_response
from server.live.mouth import ServiceMouth
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.sockets import Dialect, chosen_protocol, converse
from server.orders import refuse_missing_encoder, resolve, with_aliases
from server.schemas.speech import SpeechBody

# The text comes later; what a body needs of one stands for it.
PLACEHOLDER = "text"


@dataclass(frozen=True, slots=True)
class Opened:
    """A socket, and what a dialect needs to speak on it."""

    websocket: WebSocket
    service: Service
    record: RequestRecord
    mouth: ServiceMouth
    outbox: Outbox

    def refuse_origin(self) -> None:
        """`InvalidRequest` for a page of somebody else's whose origin `cors_origins` excludes."""
        headers, allowed = self.websocket.headers, self.service.settings.cors_origins
        origin = headers.get("origin")
        if origin is None or origin.partition("://")[2] == headers.get("host"):
            return
        if "*" not in allowed and origin not in allowed:
            raise InvalidRequest("pages of this origin may not call; see `cors_origins`", "origin")

    async def accept(self, **headers: str) -> None:
        """Complete the handshake; `_` in a header's name is `-`."""
        protocol = chosen_protocol(self.websocket.scope.get("subprotocols", []))
        named = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        await self.websocket.accept(protocol, named)

    async def deny(self, error: EngineError, header: str | None = None) -> None:
        """Answer the handshake with an error, as the clients of its path read it.

        Args:
            header: one that carries the message too, for clients that read no body.
        """
        self.record.reason = answer_for(error).code or "invalid_request"
        self.record.detail = str(error)
        response = error_response(error, self.websocket.scope)
        if header is not None:
            response.headers[header] = ascii(error_object(error)["message"])[1:-1][:500]
        await self.websocket.send_denial_response(response)

    async def converse(self, dialect: Dialect) -> None:
        """Serve it until either side ends it; raises faults of ours."""
        await converse(self.websocket, dialect, self.outbox, self.service.settings.send_timeout_s)

    async def manner(
        self,
        body: SpeechBody,
        *,
        granularity: str = "none",
        streams: bool = True,
        audio_format: AudioFormat | None = None,
    ) -> Manner:
        """How a body wants to be spoken; its text is left out, `EngineError` says what is wrong.

        Args:
            audio_format: in place of the body's.
        """
        settings = self.service.settings
        limit_s = body.timeout_s(0, settings.max_timeout_s)
        shape = body.shape(settings.loudness_lufs)
        if audio_format is not None:
            shape = replace(shape, format=audio_format)
        refuse_missing_encoder(shape.format.name, self.service.formats)
        model, request = await resolve(body, self.service, self.record)
        request = replace(request, text="")
        if granularity == "none":
            try:
                self.service.engine.check(request)
            except UnknownVoice as error:
                raise with_aliases(error, model, self.service) from None
        return Manner(request, shape, granularity, streams=streams, timeout_s=limit_s)


def arrived(websocket: WebSocket) -> Opened:
    """A socket whose handshake is still to be answered."""
    service: Service = websocket.app.state.service
    record: RequestRecord = websocket.state.record
    mouth = ServiceMouth(service, record, websocket.state.caller)
    return Opened(websocket, service, record, mouth, Outbox())


async def opened(websocket: WebSocket) -> Opened | None:
    """Accept a socket; None where a page of its origin may not call, which is answered."""
    socket = arrived(websocket)
    try:
        socket.refuse_origin()
    except InvalidRequest as error:
        await socket.deny(error)
        return None
    await socket.accept()
    return socket


__all__ = ["PLACEHOLDER", "Opened", "arrived", "opened"]
