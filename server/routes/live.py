"""The WebSockets: text in as it is written, speech out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, WebSocket

from engine import InvalidRequest
from server.dependencies import RequestRecord, Service
from server.errors import error_response
from server.live.mouth import ServiceMouth
from server.live.outbox import Outbox
from server.live.segment import Manner
from server.live.sockets import chosen_protocol, converse
from server.live.vllm_omni import Limits, VllmOmni, granularity
from server.orders import refuse_missing_encoder, resolve
from server.schemas.speech import SpeechBody

router = APIRouter()


@router.websocket("/audio/speech/stream")
async def speech_stream(websocket: WebSocket) -> None:
    """vLLM-Omni's dialect."""
    service: Service = websocket.app.state.service
    record: RequestRecord = websocket.state.record
    settings = service.settings
    if not _allowed(websocket, settings.cors_origins):
        refusal = InvalidRequest("pages of this origin may not call; see `cors_origins`", "origin")
        await websocket.send_denial_response(error_response(refusal, websocket.scope))
        return
    await websocket.accept(chosen_protocol(websocket.scope.get("subprotocols", [])))

    async def configure(data: dict[str, Any]) -> Manner:
        return await _manner(data, service, record)

    outbox = Outbox()
    mouth = ServiceMouth(service, record, websocket.state.caller)
    limits = Limits(settings.live_idle_timeout_s, settings.max_input_chars)
    dialect = VllmOmni(configure, mouth, outbox, limits)
    await converse(websocket, dialect, outbox, settings.send_timeout_s)


async def _manner(data: dict[str, Any], service: Service, record: RequestRecord) -> Manner:
    cut = granularity(data)
    streams = data.get("stream_audio")
    if not isinstance(streams, bool | None):
        raise InvalidRequest("`stream_audio` must be true or false", "stream_audio")
    # The text comes later; what a body needs of one stands for it.
    fields = {"response_format": "wav", **{k: v for k, v in data.items() if v is not None}}
    body = SpeechBody.checked({**fields, "input": "text"})
    shape = body.shape(service.settings.loudness_lufs)
    refuse_missing_encoder(shape.format.name, service.formats)
    _, request = await resolve(body, service, record)
    request = replace(request, text="")
    if cut == "none":
        service.engine.check(request)
    return Manner(request, shape, cut, streams=bool(streams))


def _allowed(websocket: WebSocket, origins: tuple[str, ...]) -> bool:
    origin = websocket.headers.get("origin")
    return origin is None or "*" in origins or origin in origins


__all__ = ["router"]
