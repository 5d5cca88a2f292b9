"""The WebSocket of vLLM-Omni's clients: text in as it is written, speech out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, WebSocket
from starlette.responses import JSONResponse

from server.errors import CODES, error_body
from server.live.messages import switch
from server.live.opening import PLACEHOLDER, Opened, opened
from server.live.segment import Manner
from server.live.sockets import Limits
from server.live.vllm_omni import VllmOmni, granularity
from server.schemas.speech import SpeechBody

# What a request may say of its reply, which is another one here.
WITHOUT_EFFECT = ("stream", "stream_format", "return_text")

router = APIRouter()


@router.websocket("/audio/speech/stream")
async def speech_stream(websocket: WebSocket) -> None:
    """vLLM-Omni's dialect."""
    socket = await opened(websocket)
    if socket is None:
        return

    async def configure(data: dict[str, Any]) -> tuple[Manner, list[str]]:
        return await _manner(data, socket)

    settings = socket.service.settings
    limits = Limits(settings.live_idle_timeout_s, settings.max_input_chars)
    await socket.converse(VllmOmni(configure, socket.mouth, socket.outbox, limits))


async def unknown(websocket: WebSocket) -> None:
    """The answer to a handshake on a path where there is no WebSocket: 404."""
    websocket.state.record.reason = CODES[404]
    message = f"there is no WebSocket at `{websocket.url.path}`"
    body = error_body(message, "invalid_request_error", None, CODES[404])
    await websocket.send_denial_response(JSONResponse(body, 404))


async def _manner(data: dict[str, Any], socket: Opened) -> tuple[Manner, list[str]]:
    cut = granularity(data)
    streams = switch(data, "stream_audio")
    fields = {"response_format": "wav", **{k: v for k, v in data.items() if v is not None}}
    body = SpeechBody.checked({**fields, "input": PLACEHOLDER})
    manner = await socket.manner(body, granularity=cut, streams=streams)
    return manner, [f"no effect here: `{name}`" for name in WITHOUT_EFFECT if data.get(name)]


__all__ = ["router", "unknown"]
