"""The WebSocket of vLLM-Omni's clients: text in as it is written, speech out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, WebSocket

from server.live.messages import switch
from server.live.opening import PLACEHOLDER, Opened, opened
from server.live.segment import Manner
from server.live.sockets import Limits
from server.live.vllm_omni import VllmOmni, granularity
from server.schemas.speech import SpeechBody

router = APIRouter()


@router.websocket("/audio/speech/stream")
async def speech_stream(websocket: WebSocket) -> None:
    """vLLM-Omni's dialect."""
    socket = await opened(websocket)
    if socket is None:
        return

    async def configure(data: dict[str, Any]) -> Manner:
        return await _manner(data, socket)

    settings = socket.service.settings
    limits = Limits(settings.live_idle_timeout_s, settings.max_input_chars)
    await socket.converse(VllmOmni(configure, socket.mouth, socket.outbox, limits))


async def _manner(data: dict[str, Any], socket: Opened) -> Manner:
    cut = granularity(data)
    streams = switch(data, "stream_audio")
    fields = {"response_format": "wav", **{k: v for k, v in data.items() if v is not None}}
    body = SpeechBody.checked({**fields, "input": PLACEHOLDER})
    return await socket.manner(body, granularity=cut, streams=streams)


__all__ = ["router"]
